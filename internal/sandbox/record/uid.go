package record

import (
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/published"
)

// The host uids of sandboxes run by root: above what systemd gives to
// containers (UIDS-GIDS.md, 0x6FFFFFFF) and below the signed 32 bit limit.
const (
	firstUID = 0x7000_0000
	lastUID  = 0x7FFF_FFFD
)

// insideUID is the user inside of a sandbox that root runs. It is not 0, because programs
// expect privileges of user 0.
const insideUID = 1000

// maxUID is below the kernel's overflow id, which represents users that are not mapped
// inside.
const maxUID = 65533

// ParseUser parses the number of the user inside. An empty text is nil, the default.
// Errors: Invalid.
func ParseUser(text string) (*uint32, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > maxUID {
		return nil, errdefs.New(errdefs.Invalid, "user %s: want a user's number from 0 to %d", vpath.Quote(text), maxUID)
	}
	return new(uint32(n)), nil
}

// CheckUser refuses a user that the runtime does not support. Errors: Invalid.
func CheckUser(uid *uint32, runtime string) error {
	if uid != nil && runtime == RuntimeDocker {
		return errdefs.New(errdefs.Invalid, "user %d: a container uses the host's users and runs as the sandbox's host user: omit the user, or use runtime bwrap", *uid)
	}
	return nil
}

// setUIDs sets the host user of a new sandbox and, if it is nil, the user inside. The home
// is locked.
func (r *Record) setUIDs(hostUID uint32) {
	r.HostUID = hostUID
	switch {
	case hostUID == 0 || r.UID != nil:
	case r.Runtime == RuntimeDocker:
		r.UID = new(hostUID)
	default:
		r.UID = new(uint32(insideUID))
	}
}

// SetRuntime gives the sandbox another runtime, and resets the user inside to the default.
func (r *Record) SetRuntime(runtime, image string) {
	same := r.Runtime == runtime
	r.Runtime, r.Image = runtime, image
	if !same && r.UID != nil && r.HostUID != 0 {
		r.UID = nil
		r.setUIDs(r.HostUID)
	}
}

// freeUIDLocked returns a host uid that no sandbox of this home has, or 0 for an ordinary
// user. The uid is random, so that two homes, or a sandbox and its predecessor, are
// unlikely to share one. The home is locked. A damaged record could have any uid, so it is
// an error.
func (h *Home) freeUIDLocked() (uint32, error) {
	if os.Geteuid() != 0 {
		return 0, nil
	}
	all, err := h.List()
	if err != nil {
		return 0, err
	}
	taken := make(map[uint32]bool, len(all))
	for _, s := range all {
		taken[s.Stored.HostUID] = true
	}
	for range 1000 {
		if uid := randomUID(); !taken[uid] {
			return uid, nil
		}
	}
	return 0, errdefs.New(errdefs.Exhausted, "sandbox: no host uid is free")
}

// placePortsLocked gives a sandbox with published ports an address that no other sandbox of this
// home has. It keeps one that it has. The home is locked.
func (h *Home) placePortsLocked(r *Record) error {
	if len(r.Publish) == 0 || r.PublishAddress != "" {
		return nil
	}
	all, err := h.List()
	if err != nil {
		return err
	}
	taken := make(map[string]bool, len(all))
	for _, s := range all {
		taken[s.Stored.PublishAddress] = true
	}
	r.PublishAddress, err = published.FreeAddress(taken)
	return err
}

func randomUID() uint32 { return firstUID + rand.Uint32N(lastUID-firstUID+1) }

// OtherUID returns a user on the host for a helper of the sandbox that root runs,
// another one than the sandbox's. A sandbox might have the same by chance, one in
// 2²⁸. It is 0 if an ordinary user runs the sandbox.
func (r *Record) OtherUID() uint32 {
	if r.HostUID == 0 {
		return 0
	}
	for {
		if uid := randomUID(); uid != r.HostUID {
			return uid
		}
	}
}

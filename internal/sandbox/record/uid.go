package record

import (
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The host uids of sandboxes run by root: above what systemd gives to
// containers (UIDS-GIDS.md, 0x6FFFFFFF) and below the signed 32 bit limit.
const (
	firstUID = 0x7000_0000
	lastUID  = 0x7FFF_FFFD
)

// insideUID is the user inside of a sandbox that root runs: an ordinary one, as
// programs expect of whoever has no privileges.
const insideUID = 1000

// maxUID is below the kernel's overflow id, which stands for whoever has no id
// inside.
const maxUID = 65533

// ParseUser reads the user inside as it is asked for; nil, for an empty text, is the
// default. Errors: Invalid.
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

// CheckUser refuses a user that the runtime cannot have. Errors: Invalid.
func CheckUser(uid *uint32, runtime string) error {
	if uid != nil && runtime == RuntimeDocker {
		return errdefs.New(errdefs.Invalid, "user %d: a container's users are the host's, so it runs as the sandbox's own: leave the user out, or use runtime bwrap", *uid)
	}
	return nil
}

// setUIDs gives a sandbox that is being made its user on the host and, unless it has
// one, inside. The home is locked.
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

// SetRuntime gives the sandbox another runtime. A user inside that the other had is
// its default again.
func (r *Record) SetRuntime(runtime, image string) {
	same := r.Runtime == runtime
	r.Runtime, r.Image = runtime, image
	if !same && r.UID != nil && r.HostUID != 0 {
		r.UID = nil
		r.setUIDs(r.HostUID)
	}
}

// freeUIDLocked returns a host uid that no sandbox of this home has, drawn at
// random so that two homes, and a sandbox and its predecessor, are unlikely to
// share one; 0 for an ordinary user. The home is locked. A damaged record
// might hold any, so it stops the allocation.
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
		if uid := firstUID + rand.Uint32N(lastUID-firstUID+1); !taken[uid] {
			return uid, nil
		}
	}
	return 0, errdefs.New(errdefs.Exhausted, "sandbox: no host uid is free")
}

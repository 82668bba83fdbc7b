package sandbox

import (
	"math/rand/v2"
	"os"

	"github.com/agentfense/agentfense/internal/fault"
)

// The host uids of sandboxes run by root: above what systemd gives to
// containers (UIDS-GIDS.md, 0x6FFFFFFF) and below the signed 32 bit limit.
const (
	firstUID = 0x7000_0000
	lastUID  = 0x7FFF_FFFD
)

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
		taken[s.record.HostUID] = true
	}
	for range 1000 {
		if uid := firstUID + rand.Uint32N(lastUID-firstUID+1); !taken[uid] {
			return uid, nil
		}
	}
	return 0, fault.New(fault.Exhausted, "sandbox: no host uid is free")
}

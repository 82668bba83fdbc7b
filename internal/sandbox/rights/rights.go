// Package rights says with which rights this process accesses the source and the delta of a
// sandbox.
//
// A review may run as an ordinary user who has capabilities over the user's own files, in a
// user namespace (launch.RunAsOwner): a program inside can give its files modes such as 0000.
// It promises that the capabilities are effective only while AsOwner runs, for the delta. In
// the source the modes apply.
package rights

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// SourceUser returns the user whose rights to the source apply, or nil if the kernel checks
// them. Errors: Internal.
func SourceUser() (*layer.User, error) {
	caps, err := capabilities()
	if err != nil || os.Geteuid() == 0 || caps[0].Permitted == 0 {
		return nil, err
	}
	return &layer.User{UID: uint32(os.Geteuid())}, nil
}

// AsUser calls do without effective capabilities, unless this process is root.
func AsUser(do func() error) error { return withRights(false, do) }

// AsOwner calls do, within AsUser, with all permitted capabilities.
func AsOwner(do func() error) error { return withRights(true, do) }

// withRights changes the effective capabilities of this thread while do runs.
func withRights(all bool, do func() error) error {
	if os.Geteuid() == 0 {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := capabilities()
	if err != nil {
		return err
	}
	want := before
	for i := range want {
		want[i].Effective = 0
		if all {
			want[i].Effective = want[i].Permitted
		}
	}
	if want == before {
		return do()
	}
	if err := setCapabilities(want); err != nil {
		return err
	}
	err = do()
	if restoreErr := setCapabilities(before); restoreErr != nil {
		return errors.Join(err, restoreErr)
	}
	return err
}

// capSets are a thread's capability sets in the form of capget(2), in two halves.
type capSets [2]unix.CapUserData

func capabilities() (capSets, error) {
	var sets capSets
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return sets, errdefs.New(errdefs.Internal, "capabilities: %w", err)
	}
	return sets, nil
}

func setCapabilities(sets capSets) error {
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return errdefs.New(errdefs.Internal, "capabilities: %w", err)
	}
	return nil
}

//go:build unix

package safefs

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// ReadPrivate is ReadNamed for a secret. Errors: also those of CheckPrivate.
func ReadPrivate(name string, limit int64) ([]byte, error) {
	f, err := openNamed(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := CheckPrivate(f); err != nil {
		return nil, err
	}
	return readBounded(f, limit)
}

// CheckPrivate refuses an open file that others than its owner may read or write, or that belongs
// neither to this user nor to root. Errors: Precondition, with advice.
func CheckPrivate(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	switch {
	case st.Uid != uint32(os.Geteuid()) && st.Uid != 0:
		return errdefs.New(errdefs.Precondition, "belongs to uid %d, not to you (uid %d)", st.Uid, os.Geteuid())
	case st.Mode&0o077 != 0:
		return errdefs.New(errdefs.Precondition, "mode %04o gives other users access: run chmod 600", st.Mode&0o7777)
	}
	return nil
}

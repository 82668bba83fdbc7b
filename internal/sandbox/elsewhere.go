package sandbox

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/layer"
)

// ResolveTarget returns the identity of the directory at path, for
// ApplyOptions.To. Errors: as ResolveSource; Invalid for the sandbox's source and
// for the root of the host.
func (s *Sandbox) ResolveTarget(path string) (*Source, error) {
	to, err := s.home.ResolveSource(path)
	switch own := s.record.Source; {
	case err != nil:
		return nil, err
	case to.Path == "/":
		return nil, fault.New(fault.Invalid, "apply to /: the whole root cannot take changes")
	case to.isSame(own):
		return nil, fault.New(fault.Invalid, "apply to %s: it is the sandbox's own source; leave the directory out", to.Path)
	}
	return &to, nil
}

// openToApply opens the sandbox to apply its changes to the source, or elsewhere.
func (s *Sandbox) openToApply(o ApplyOptions) (*work, error) {
	if o.To == nil {
		return s.openTo(PurposeApply, o.Drop, o.DryRun)
	}
	return s.openBy(PurposeApply, o.Drop, o.DryRun, func(bool) (*work, error) {
		source, err := o.To.Open()
		if err != nil {
			return nil, err
		}
		w, err := s.openOver(source, *o.To, layer.Options{ReadOnly: true, Elsewhere: true})
		if err != nil {
			return nil, err
		}
		// A list of its own: what a killed apply left is in another directory.
		w.elsewhere, w.turnFile = true, fmt.Sprintf("apply-to-%d-%d.lock", o.To.Dev, o.To.Ino)
		return w, nil
	})
}

// hasBaseContent reports whether the file name of dir, which st describes, has the
// mode and the content that b recorded, although it is another file.
func hasBaseContent(b *layer.Base, dir int, name string, st *unix.Stat_t) bool {
	if st == nil || st.Mode != b.Mode {
		return false
	}
	if b.SHA256 == nil {
		return st.Size == b.Size && st.Mtim == b.Mtime
	}
	switch st.Mode & typeBits {
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, target)
		sum := sha256.Sum256(target[:max(n, 0)])
		return err == nil && bytes.Equal(sum[:], b.SHA256)
	case unix.S_IFREG:
		if st.Size != b.Size {
			return false
		}
		fd, err := hostfile.Open(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err != nil {
			return false
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		h := sha256.New()
		_, err = io.Copy(h, io.LimitReader(f, b.Size+1))
		return err == nil && bytes.Equal(h.Sum(nil), b.SHA256)
	}
	return false
}

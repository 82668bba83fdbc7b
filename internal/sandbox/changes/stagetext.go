package changes

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// StageText is Stage with the content text.
func (e Entry) StageText(text []byte, l Look) (*Staged, error) {
	fd, err := unix.MemfdCreate("text", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "%w", err)
	}
	f := os.NewFile(uintptr(fd), "text")
	defer f.Close()
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "%w", err)
	}
	return e.Stage(f, l)
}

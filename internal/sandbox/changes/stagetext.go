package changes

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// StageText is Stage with the content text.
func (e Entry) StageText(text []byte, l Look) (*Staged, error) {
	f, err := TextFile(text)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return e.Stage(f, l)
}

// TextFile returns a file in memory with the content text. Errors: Exhausted.
func TextFile(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("text", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "%w", err)
	}
	f := os.NewFile(uintptr(fd), "text")
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, errdefs.New(errdefs.Exhausted, "%w", err)
	}
	return f, nil
}

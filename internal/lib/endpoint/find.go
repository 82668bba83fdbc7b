//go:build linux

package endpoint

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FindOwn finds the server of the state directory dir. A file that is not
// locked was left by one that was killed; one that cannot be read tells nothing.
func FindOwn(dir string) (s Own, serves bool) {
	f, err := os.OpenFile(filepath.Join(dir, "server.json"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return s, false
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return s, false
	}
	const most = 64 << 10
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil || json.Unmarshal(text, &s) != nil || s.GRPC == "" {
		return Own{}, false
	}
	return s, true
}

//go:build linux

package endpoint

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FindDefault finds the server that clients use when no endpoint is given: this
// user's, which has the state directory dir. A file that is not locked was left by a
// killed server. A file that cannot be read counts as no server.
func FindDefault(dir string) (s LocalServer, serves bool) {
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
		return LocalServer{}, false
	}
	return s, true
}

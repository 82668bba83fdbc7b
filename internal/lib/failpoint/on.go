//go:build crashpoints

package failpoint

import (
	"os"

	"golang.org/x/sys/unix"
)

// At kills this process if the file names point.
func At(point string) {
	armed, err := os.ReadFile(os.Getenv(Variable))
	if err != nil || string(armed) != point {
		return
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL) // one's own pid can always be killed
	select {}
}

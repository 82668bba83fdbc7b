//go:build !windows

package gitconfig

import "golang.org/x/sys/unix"

// openFlags are for files that may turn out to be a FIFO or a terminal.
const openFlags = unix.O_NONBLOCK | unix.O_NOCTTY

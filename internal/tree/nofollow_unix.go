//go:build unix

package tree

import "syscall"

const noFollow = syscall.O_NOFOLLOW

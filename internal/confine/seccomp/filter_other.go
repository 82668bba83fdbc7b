//go:build !amd64 && !arm64

package seccomp

var program, egressProgram, socketProgram []byte

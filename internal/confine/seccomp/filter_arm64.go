package seccomp

import _ "embed"

//go:embed filter_arm64.bpf
var program []byte

//go:embed egress_arm64.bpf
var egressProgram []byte

//go:embed sockets_arm64.bpf
var socketProgram []byte

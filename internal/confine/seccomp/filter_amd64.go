package seccomp

import _ "embed"

//go:embed filter_amd64.bpf
var program []byte

//go:embed egress_amd64.bpf
var egressProgram []byte

//go:embed sockets_amd64.bpf
var socketProgram []byte

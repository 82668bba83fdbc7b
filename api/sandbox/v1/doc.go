// Package sandboxv1 is the server's interface in Go: messages, clients and
// servers of gRPC, and the gateway from REST to gRPC. All but this text is
// generated from the .proto files beside it (scripts/api).
package sandboxv1

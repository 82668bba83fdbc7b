//go:build !linux

package dial

import (
	"context"
	"net"
)

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

package daemon

import (
	"log/slog"
	"net"
	"net/http"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/connlimit"
)

// mostConnections is the default limit of connections, which take about 80 KiB each.
const mostConnections = 8 << 10

// openFiles is the number of descriptors that the server may have. The Go runtime has raised the
// server's soft limit to the hard one; children get the original limit.
func openFiles() (uint64, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0, errdefs.New(errdefs.Internal, "limit of open files: %w", err)
	}
	return files.Cur, nil
}

// limitConnections returns the limiter of all listeners. Half of the server's descriptors remain
// for its other work: uploads, database, supervisors. Errors: Precondition for a configured limit
// that is higher.
func limitConnections(l config.ServerLimits, files uint64, log *slog.Logger) (*connlimit.Limiter, error) {
	room := int(min(files/2, 1<<30))
	most := l.Connections
	switch {
	case most == 0:
		most = max(4, min(room, mostConnections))
	case most > room:
		return nil, errdefs.New(errdefs.Precondition,
			"limits.connections: %d needs a limit of %d open files, but the limit is %d: raise it (ulimit -n, LimitNOFILE= of a unit)", most, 2*most, files)
	}
	return connlimit.New(connlimit.Options{
		Most: most, MostPerPeer: min(most, l.ConnectionsPerPeer), FirstCall: l.FirstCallTimeout, Log: log,
	}), nil
}

// mostCalls is the default limit of an owner's concurrent calls.
const mostCalls = 1024

// callFiles is the number of descriptors that a call may need: an exec has three pipes and a
// connection.
const callFiles = 8

// callsPerOwner is the limit of an owner's concurrent calls. They may use a quarter of the
// descriptors, so that another quarter remains for other owners beside the connections.
func callsPerOwner(l config.ServerLimits, files uint64) int {
	if l.CallsPerOwner > 0 {
		return l.CallsPerOwner
	}
	return max(4, int(min(files/4/callFiles, mostCalls)))
}

// restState keeps a connection without credentials open for one more request, because some requests
// need none.
func restState(c net.Conn, s http.ConnState) {
	if at, ok := c.RemoteAddr().(connlimit.Addr); ok && s == http.StateActive {
		at.Stay()()
	}
}

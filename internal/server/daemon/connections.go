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

// mostConnections is the most of a server that is not told how many: some 80 KiB
// each.
const mostConnections = 8 << 10

// openFiles is how many descriptors the server may have. The Go runtime has raised
// our own soft limit to the hard one, and gives children what we were started with.
func openFiles() (uint64, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0, errdefs.New(errdefs.Internal, "limit of open files: %w", err)
	}
	return files.Cur, nil
}

// limitConnections makes the limiter of all listeners. Half of the descriptors
// that the server may have stay for what it does for its callers: uploads,
// database, supervisors. Errors: Precondition if it is to take more.
func limitConnections(l config.ServerLimits, files uint64, log *slog.Logger) (*connlimit.Limiter, error) {
	room := int(min(files/2, 1<<30))
	most := l.Connections
	switch {
	case most == 0:
		most = max(4, min(room, mostConnections))
	case most > room:
		return nil, errdefs.New(errdefs.Precondition,
			"limits.connections: %d needs a limit of %d open files, and it is %d: raise it (ulimit -n, LimitNOFILE= of a unit)", most, 2*most, files)
	}
	return connlimit.New(connlimit.Options{
		Most: most, MostPerPeer: min(most, l.ConnectionsPerPeer), FirstCall: l.FirstCallTimeout, Log: log,
	}), nil
}

// mostCalls is the most calls at once of an owner where nothing says how many.
const mostCalls = 1024

// callFiles is as many descriptors as a call may need: an exec has three pipes
// and a connection.
const callFiles = 8

// callsPerOwner is how many calls at once an owner may have: a quarter of the
// descriptors is enough for them, so that others find some of the half that
// connections leave.
func callsPerOwner(l config.ServerLimits, files uint64) int {
	if l.CallsPerOwner > 0 {
		return l.CallsPerOwner
	}
	return max(4, int(min(files/4/callFiles, mostCalls)))
}

// restState keeps a connection that has shown no credentials for one request
// more: some are answered without.
func restState(c net.Conn, s http.ConnState) {
	if at, ok := c.RemoteAddr().(connlimit.Addr); ok && s == http.StateActive {
		at.Stay()()
	}
}

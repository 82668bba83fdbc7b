package cli

import (
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/sandbox"
)

// ownServer is what the server of this state directory says of itself, in a file
// that it locks for as long as it is true (docs/server.md).
type ownServer struct {
	GRPC      string `json:"grpc"`
	TLS       bool   `json:"tls"`
	TokenFile string `json:"token_file"`
}

// ownServer finds this user's server. A file that is not locked was left by one
// that was killed; one that cannot be read tells nothing.
func (e *env) ownServer() (s ownServer, serves bool) {
	dir, err := sandbox.HomeDir(e.getenv)
	if err != nil {
		return s, false
	}
	f, err := os.OpenFile(filepath.Join(dir, "server.json"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return s, false
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return s, false
	}
	const most = 64 << 10
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil || json.Unmarshal(text, &s) != nil || s.GRPC == "" {
		return ownServer{}, false
	}
	return s, true
}

// endpoint is its address as --endpoint takes it.
func (s ownServer) endpoint() string {
	switch {
	case strings.Contains(s.GRPC, "://"):
		return s.GRPC
	case s.TLS:
		return "https://" + s.GRPC
	}
	return "http://" + s.GRPC
}

// defaultEndpoint is the server of the verbs that need one: this user's, else
// the address where one listens that was told nothing else.
func (e *env) defaultEndpoint() string {
	if own, serves := e.ownServer(); serves {
		return own.endpoint()
	}
	return usualEndpoint
}

const usualEndpoint = "localhost:" + control.DefaultPort

// meet reports whether our own server is at an endpoint, and makes sure that it
// is the one that is reached: to another, which another user of this host may
// run, its token would give everything of ours. The name localhost may also be
// an address at which ours does not listen.
func (s ownServer) meet(at *control.Endpoint) bool {
	own, err := control.ParseEndpoint(s.endpoint(), control.Options{})
	if err != nil || own.Unix != at.Unix || own.Port != at.Port || own.TLS != at.TLS {
		return false
	}
	ip, err := netip.ParseAddr(own.Host)
	everywhere := err == nil && ip.IsUnspecified()
	switch {
	case own.Host == at.Host, everywhere && at.IsLocal():
		return true
	case at.Host == "localhost" && own.IsLocal():
		if !at.TLS { // else its certificate tells who it is
			at.Host = own.Host
		}
		return true
	}
	return false
}

package endpoint

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// LocalServer has the addresses of this user's server. The server writes them to a file of its
// state directory and locks that file while it serves (docs/server.md).
type LocalServer struct {
	PID       int    `json:"pid"`
	GRPC      string `json:"grpc"`
	TLS       bool   `json:"tls"`
	TokenFile string `json:"token_file"`
}

// Address returns the address in the form that Parse reads.
func (s LocalServer) Address() string {
	switch {
	case strings.Contains(s.GRPC, "://"):
		return s.GRPC
	case s.TLS:
		return "https://" + s.GRPC
	}
	return "http://" + s.GRPC
}

// VerifyListener returns a function for Endpoint.Guard that checks that the server of
// the state directory dir still listens at the address of s. It returns the server's
// process id. Errors: Unavailable if the server does not listen there any more.
func (s LocalServer) VerifyListener(dir string) func() (listener string, err error) {
	return func() (string, error) {
		now, serves := FindDefault(dir)
		if !serves || now.Address() != s.Address() {
			return "", errdefs.New(errdefs.Unavailable, "%s: your server no longer listens there", s.Address())
		}
		return strconv.Itoa(now.PID), nil
	}
}

// Matches reports whether at names this server. It then changes the name localhost to
// the address at which the server listens, because another user may listen at another
// address of that name, and would receive the token.
func (s LocalServer) Matches(at *Endpoint) bool {
	own, err := Parse(s.Address(), Files{})
	if err != nil || own.Unix != at.Unix || own.Port != at.Port || own.TLS != at.TLS {
		return false
	}
	ip, err := netip.ParseAddr(own.Host)
	everywhere := err == nil && ip.IsUnspecified()
	switch {
	case own.Host == at.Host, everywhere && at.IsLocal():
		return true
	case at.Host == "localhost" && own.IsLocal():
		if !at.TLS { // otherwise its certificate identifies it
			at.Host = own.Host
		}
		return true
	}
	return false
}

package endpoint

import (
	"net/netip"
	"strings"
)

// Own is what a server of this user says of itself, in a file of its state
// directory that it locks for as long as it is true (docs/server.md).
type Own struct {
	PID       int    `json:"pid"`
	GRPC      string `json:"grpc"`
	TLS       bool   `json:"tls"`
	TokenFile string `json:"token_file"`
}

// Address is its address as Parse takes it.
func (s Own) Address() string {
	switch {
	case strings.Contains(s.GRPC, "://"):
		return s.GRPC
	case s.TLS:
		return "https://" + s.GRPC
	}
	return "http://" + s.GRPC
}

// Usual is the address where a server listens that was told nothing else.
const Usual = "localhost:" + DefaultPort

// Meet reports whether the server is at an endpoint, and makes sure that it is
// the one that is reached: to another, which another user of this host may run,
// its token would give everything of ours. The name localhost may also be an
// address at which ours does not listen.
func (s Own) Meet(at *Endpoint) bool {
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
		if !at.TLS { // else its certificate tells who it is
			at.Host = own.Host
		}
		return true
	}
	return false
}

package endpoint

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/fault"
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

// FindUsual is the address, as Parse takes it, of who listens at Usual, "" if
// nobody does. It is an address, not a name, for that may stand for a second one
// at which somebody else begins to listen. Errors: Denied unless it is certain
// that each that listens there is of this user or of root and, if of this user,
// sees the files that we see: a command in a sandbox on the host's network does
// not.
func FindUsual() (address string, err error) {
	address, _, err = trusted(DefaultPort)
	return address, err
}

// WhoseUsual says who listens at an address that FindUsual has returned, for
// Endpoint.Guard. Errors: Unavailable if nobody does, Denied as for FindUsual.
func WhoseUsual(address string) func() (who string, err error) {
	return func() (string, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return "", err
		}
		now, who, err := trusted(port)
		if err == nil && now != address {
			err = gone(address)
		}
		return who, err
	}
}

// Whose says that the server of the state directory dir is where s is, for
// Endpoint.Guard. Errors: Unavailable if it is not.
func (s Own) Whose(dir string) func() (who string, err error) {
	return func() (string, error) {
		now, serves := FindOwn(dir)
		if !serves || now.Address() != s.Address() {
			return "", gone(s.Address())
		}
		return strconv.Itoa(now.PID), nil
	}
}

func gone(address string) error {
	return fault.New(fault.Unavailable, "%s: the server that was found there is gone", address)
}

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

package client

import (
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ownServer is where this user's own server runs; zero if it does not.
type ownServer struct {
	GRPC      string `json:"grpc"` // host:port or unix:///path
	TLS       bool   `json:"tls"`
	TokenFile string `json:"token_file"`
}

// isAt reports whether an endpoint means that server. Where no server runs any
// user of this host may listen for tokens, and localhost may be another's [::1].
func (s ownServer) isAt(endpoint string, secure bool) bool {
	switch {
	case s.GRPC == "" || s.TLS != secure:
		return false
	case endpoint == s.GRPC:
		return true
	}
	host, port, err := net.SplitHostPort(endpoint)
	_, own, ownErr := net.SplitHostPort(s.GRPC)
	if err != nil || ownErr != nil || port != own {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || secure && ip != nil && ip.IsLoopback()
}

// token is its default token, "" if it cannot be read.
func (s ownServer) token() string {
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// stateDir is this user's state directory.
func stateDir() string {
	if dir := os.Getenv("AGENTFENSE_HOME"); dir != "" {
		return dir
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "agentfense")
	}
	return filepath.Join(os.Getenv("HOME"), ".local", "share", "agentfense")
}

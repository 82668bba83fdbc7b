package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// check refuses values that are each right and wrong together.
func (l *loader) check() error {
	for _, check := range []func() error{l.checkTLS, l.checkAddrs, l.checkTimeouts, l.checkNetwork, l.checkRuntimes} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) checkTLS() error {
	t := l.config.Server.TLS
	switch {
	case t.Cert != "" && t.Key == "":
		return l.at("server.tls.cert", "server.tls.key is missing")
	case t.Cert == "" && t.Key != "":
		return l.at("server.tls.key", "server.tls.cert is missing")
	case t.ClientCA != "" && t.Cert == "":
		return l.at("server.tls.client_ca", "server.tls.cert and server.tls.key are missing")
	}
	return nil
}

func (l *loader) checkAddrs() error {
	s := l.config.Server
	for _, a := range []struct{ key, addr string }{{"server.grpc_addr", s.GRPCAddr}, {"server.http_addr", s.HTTPAddr}} {
		if _, isSocket := Socket(a.addr); isSocket && s.TLS.Enabled() {
			return l.at(a.key, "%s is a socket of this host, over which no TLS is spoken: leave server.tls out", a.addr)
		}
		if a.addr != "" && !s.TLS.Enabled() && !IsLoopback(a.addr) {
			return l.at(a.key, "%s can be reached from other hosts: give server.tls.cert and server.tls.key, or listen on 127.0.0.1", a.addr)
		}
	}
	return nil
}

func (l *loader) checkTimeouts() error {
	r := l.config.Runtime
	if r.MaxTimeout == 0 || r.DefaultTimeout > 0 && r.DefaultTimeout <= r.MaxTimeout {
		return nil
	}
	key := "runtime.default_timeout"
	if _, given := l.from[key]; !given {
		key = "runtime.max_timeout"
	}
	if r.DefaultTimeout == 0 {
		return l.at(key, "runtime.default_timeout 0 means none, which is beyond runtime.max_timeout %s", r.MaxTimeout)
	}
	return l.at(key, "runtime.default_timeout %s is beyond runtime.max_timeout %s", r.DefaultTimeout, r.MaxTimeout)
}

func (l *loader) checkNetwork() error {
	d := l.config.Runtime.Docker
	if d.NetworkMode != NetworkNone && !d.EnableNetworking {
		return l.at("runtime.docker.network_mode", "%s needs runtime.docker.enable_networking: true", d.NetworkMode)
	}
	return nil
}

func (l *loader) checkRuntimes() error {
	r := l.config.Runtime
	if len(r.Allowed) > 0 && !slices.Contains(r.Allowed, r.Type) {
		return l.at("runtime.allowed", "it lacks %s, the runtime.type of a sandbox that does not ask for one", r.Type)
	}
	return nil
}

const socketScheme = "unix://"

// Socket returns the path of an address that names a socket of this host:
// unix:///path.
func Socket(addr string) (path string, ok bool) { return strings.CutPrefix(addr, socketScheme) }

// SocketAddr is the address of a socket's path.
func SocketAddr(path string) string { return socketScheme + path }

// IsLoopback reports whether only this host can reach a listener at addr,
// host:port or a socket. A name other than localhost is not trusted to stay what
// it is.
func IsLoopback(addr string) bool {
	if _, isSocket := Socket(addr); isSocket {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/sandbox/audit/export"
)

// check refuses combinations of values that are each valid.
func (l *loader) check() error {
	for _, check := range []func() error{l.checkTLS, l.checkAddrs, l.checkTimeouts, l.checkNetwork, l.checkRuntimes, l.checkExport} {
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
			return l.at(a.key, "%s is a unix socket, which does not use TLS: remove server.tls", a.addr)
		}
		if a.addr != "" && !s.TLS.Enabled() && !IsLoopback(a.addr) {
			return l.at(a.key, "%s can be reached from other hosts: give server.tls.cert and server.tls.key, or listen on 127.0.0.1", a.addr)
		}
	}
	return nil
}

// checkExport refuses what belongs to a receiver that is not named.
func (l *loader) checkExport() error {
	x := l.config.Export
	switch {
	case x.OTLPURL == "" && x.OTLPHeaderFile != "":
		return l.at("audit.otlp_header_file", "audit.otlp_url is missing")
	case x.OTLPURL == "" && x.OTLPCAFile != "":
		return l.at("audit.otlp_ca_file", "audit.otlp_url is missing")
	case x.AlertWebhook == "" && !slices.Equal(x.AlertWhen, export.DefaultThresholds()):
		return l.at("audit.alert_when", "audit.alert_webhook is missing")
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
		return l.at(key, "runtime.default_timeout 0 means no time-out, which exceeds runtime.max_timeout %s", r.MaxTimeout)
	}
	return l.at(key, "runtime.default_timeout %s exceeds runtime.max_timeout %s", r.DefaultTimeout, r.MaxTimeout)
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
		return l.at("runtime.allowed", "it must contain %s, the value of runtime.type", r.Type)
	}
	return nil
}

const socketScheme = "unix://"

// Socket returns the path of a unix socket's address: unix:///path.
func Socket(addr string) (path string, ok bool) { return strings.CutPrefix(addr, socketScheme) }

// SocketAddr returns the address of the unix socket at path.
func SocketAddr(path string) string { return socketScheme + path }

// IsLoopback reports whether only this host can reach a listener at addr, host:port or a
// socket. It returns false for a name other than localhost, because its address may change.
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

package network_test

import (
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A connection to an allowed name is for that name: it cannot ask the server there for another
// one, by TLS or by HTTP.
func TestConnectionsAreForTheNameThatIsAllowed(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`
at=$(getent hosts example.com | cut -d' ' -f1)
try() { curl -sS -o /dev/null -w '%{http_code}\n' "$@" 2>/dev/null || echo refused; }
try --resolve www.example.com:443:$at https://www.example.com/
try --connect-to ::example.com: https://other.example.net/
try -k https://$at/
try http://$at/
try -H 'Host: other.example.net' http://example.com/
try -H 'Host: example.com:443' http://example.com/
try --request-target http://other.example.net/ http://example.com/
try -X CONNECT http://example.com/
try --http2-prior-knowledge http://example.com/
try --http2 http://example.com/
try -H 'Host:' http://example.com/
try https://example.com/
try http://example.com/
`, flags(authority, "example.com", "example.com:80")...)
		want(t, r, `000
refused
000
refused
000
refused
403
403
403
403
403
000
refused
403
403
200
200
`)
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout,
			`example.com port 443: TLS names another server: "www.example.com"`, `example.com port 443: TLS names another server: "other.example.net"`,
			"example.com port 443: TLS without a server name", `example.com port 80: HTTP names another host: "100.64.0.2"`,
			`example.com port 80: HTTP names another host: "other.example.net"`, `example.com port 80: HTTP names another host: "example.com:443"`,
			"example.com port 80: method CONNECT", "example.com port 80: HTTP/2 without TLS", "example.com port 80: change of protocol (upgrade)",
			"example.com port 80: not exactly one Host field")
	})
}

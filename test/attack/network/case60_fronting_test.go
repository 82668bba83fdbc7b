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
	})
}

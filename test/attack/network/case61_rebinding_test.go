package network_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// An allowed name leads to public addresses only, whatever its owner says.
func TestNamesLeadToPublicAddressesOnly(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`for n in inner metadata rebound mapped host www; do
	printf '%s ' $n; curl -sS -o /dev/null -w '%{http_code}\n' http://$n.example.com/
done`, flags(authority, "*.example.com:80")...)
		want(t, r, "inner 403\nmetadata 403\nrebound 403\nmapped 403\nhost 403\nwww 200\n")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout,
			"inner.example.com port 80: the name leads to an address that is not a public one",
			"metadata.example.com port 80: the name leads to an address that is not a public one",
			"rebound.example.com port 80: the name leads to an address that is not a public one",
			"mapped.example.com port 80: the name leads to an address that is not a public one",
			"host.example.com port 80: the name leads to an address of this host")
	})
}

// hostile are names below example.com with what their owner says of them, and whether that may be
// used. An owner can point a name at every other one.
var hostile = []struct {
	name    string
	records []string
	public  bool
}{
	{"alias", []string{"CNAME public.example.org"}, true},
	{"inner-alias", []string{"CNAME first.example.org"}, false},
	{"local-alias", []string{"CNAME localhost"}, false},
	{"alias-of-two", []string{"CNAME two.example.org"}, true},
	{"nat64", []string{"AAAA 64:ff9b::10.0.0.1"}, false},
	{"nat64-metadata", []string{"AAAA 64:ff9b::169.254.169.254"}, false},
	{"sixtofour", []string{"AAAA 2002:7f00:1::1"}, false},
	{"mapped6", []string{"AAAA ::ffff:10.0.0.1"}, false},
	{"unique-local", []string{"AAAA fd00:ec2::254"}, false},
	{"loopback6", []string{"AAAA ::1"}, false},
	{"synthetic", []string{"A 100.64.0.2"}, false},
	{"nowhere", []string{"A 0.0.0.0"}, false},
}

// The rest of what the name server knows.
var elsewhere = map[string][]string{
	"public.example.org": {"A " + harness.PublicAddr},
	"first.example.org":  {"CNAME second.example.org"},
	"second.example.org": {"CNAME service.internal"},
	"service.internal":   {"A " + harness.PrivateAddr},
	"two.example.org":    {"A " + harness.PrivateAddr, "A " + harness.PublicAddr},
	"localhost":          {"A 127.0.0.1", "AAAA ::1"},
}

// The owner of an allowed name answers for it by a name server: with aliases of internal names,
// with addresses that stand for internal ones, and with another address each time.
func TestANameServerThatRebinds(t *testing.T) {
	var served atomic.Bool // rebinding.example.com was asked once
	authority := internet(t, func(_ *testing.T, mux *http.ServeMux) {
		mux.HandleFunc("rebinding.example.com/", func(http.ResponseWriter, *http.Request) { served.Store(true) })
	})
	known := map[string][]string{}
	for _, h := range hostile {
		known[h.name+".example.com"] = h.records
	}
	world.NameServer(t, func(name string) []string {
		switch {
		case name != "rebinding.example.com":
			return append(known[name], elsewhere[name]...)
		case served.Load():
			return []string{"A " + harness.PrivateAddr}
		}
		return []string{"A " + harness.PublicAddr}
	})
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		served.Store(false)
		s := harness.New(t, binary, nil, who...)
		var names, expected, refused []string
		for _, h := range hostile {
			names = append(names, h.name)
			code := http.StatusOK
			if !h.public {
				code = http.StatusForbidden
				refused = append(refused, h.name+".example.com port 80: the name leads to an address that is not a public one")
			}
			expected = append(expected, fmt.Sprintf("%s %d\n", h.name, code))
		}
		r := s.Run(`for n in `+strings.Join(names, " ")+` rebinding; do
	printf '%s ' $n; curl -sS -o /dev/null -w '%{http_code}\n' http://$n.example.com/
done
while sleep 0.5; do # what a name leads to is kept for two seconds
	code=$(curl -sS -o /dev/null -w '%{http_code}' http://rebinding.example.com/)
	[ $code = 200 ] || break
done
echo rebinding $code`, flags(authority, "*.example.com:80")...)
		want(t, r, strings.Join(expected, "")+"rebinding 200\nrebinding 403\n")
		refused = append(refused, "rebinding.example.com port 80: the name leads to an address that is not a public one")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, refused...)
	})
}

// An address that a rule names may be a private one, but none of the host.
func TestAddressesThatRulesName(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`for a in `+harness.PrivateAddr+` `+harness.HostAddr+`; do
	curl -sS -o /dev/null -w '%{http_code}\n' http://$a/
done`, flags(authority, harness.PrivateAddr+":80", harness.HostAddr+":80")...)
		want(t, r, "200\n403\n")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, harness.HostAddr+" port 80: the name leads to an address of this host")
	})
}

package network_test

import (
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
			"host.example.com port 80: the name leads to an address of this host")
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
	})
}

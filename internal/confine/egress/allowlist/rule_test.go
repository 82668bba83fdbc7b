package allowlist

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestAURLIsRefusedAsSuch(t *testing.T) {
	for _, text := range []string{"https://example.com", "https://example.com:8443/v1", "user:secret@example.com"} {
		if _, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), "without a scheme, a user or a path") {
			t.Errorf("ParseRule(%q): %v, want it to say what a rule does not have", text, err)
		}
	}
}

func TestRulesHaveOneForm(t *testing.T) {
	tests := []struct {
		name string
		text string
		want string // "" is refused
	}{
		{"the port is that of TLS", "example.com", "example.com:443"},
		{"another port", "Example.com.:8443", "example.com:8443"},
		{"every name of a domain", "*.example.com", "*.example.com:443"},
		{"any protocol", "github.com:22,raw", "github.com:22,raw"},
		{"other letters", "bücher.example:80", "xn--bcher-kva.example:80"},
		{"an address", "93.184.216.34:22,raw", "93.184.216.34:22,raw"},
		{"a private address that is named", "10.1.2.3", "10.1.2.3:443"},
		{"an IPv6 address", "[2606:2800:0::1]:8080", "[2606:2800::1]:8080"},
		{"an IPv6 address without a port", "[2606:2800::1]", "[2606:2800::1]:443"},
		{"an IPv6 address without brackets", "2606:2800::1", "[2606:2800::1]:443"},
		{"a name in brackets", "[example.com]:443", ""},
		{"an open bracket", "[2606:2800::1:443", ""},
		{"text behind a bracket", "[2606:2800::1]443", ""},
		{"nothing", "", ""},
		{"a port alone", ":443", ""},
		{"port 0", "example.com:0", ""},
		{"a port that is too high", "example.com:65536", ""},
		{"a port with a sign", "example.com:+443", ""},
		{"a port with a zero before", "example.com:0443", ""},
		{"an empty port", "example.com:", ""},
		{"an unknown option", "example.com,tls", ""},
		{"raw twice", "example.com,raw,raw", ""},
		{"a scheme", "https://example.com", ""},
		{"a path", "example.com/v1", ""},
		{"a user", "user@example.com", ""},
		{"every host", "*", ""},
		{"a star in the middle", "api.*.com", ""},
		{"a star in a label", "a*.example.com", ""},
		{"every name of a top-level domain", "*.com", ""},
		{"every name of a registry's domain", "*.co.uk", ""},
		{"every name of a hoster's domain", "*.github.io", ""},
		{"every name of an unknown top-level domain", "*.corp", ""},
		{"every name of a hoster's domain, by will", "*.GitHub.io,public-suffix", "*.github.io:443,public-suffix"},
		{"any protocol to every owner", "*.github.io:22,public-suffix,raw", "*.github.io:22,public-suffix,raw"},
		{"some requests to every owner", "*.github.io,public-suffix,intercept GET /**", "*.github.io:443,public-suffix,intercept GET /**"},
		{"every owner behind another option", "*.github.io,raw,public-suffix", ""},
		{"every owner twice", "*.github.io,public-suffix,public-suffix", ""},
		{"every owner of one host", "example.com,public-suffix", ""},
		{"every owner of an address", "10.1.2.3,public-suffix", ""},
		{"every owner below localhost", "*.localhost:3000,public-suffix", ""},
		{"every host, by will", "*,public-suffix", ""},
		{"every name below an address", "*.10.1.2.3", ""},
		{"an odd spelling of an address", "127.1", ""},
		{"the sandbox itself", "127.0.0.1:80", ""},
		{"a port of this host", "localhost:3000", "localhost:3000"},
		{"a port of this host, in other letters", "LocalHost.:3000,raw", "localhost:3000"},
		{"this host without a port", "localhost", ""},
		{"this host without a port, raw", "localhost,raw", ""},
		{"requests to this host", "localhost:3000,intercept", ""},
		{"some requests to this host", "localhost:3000,intercept GET /**", ""},
		{"this host's resolver", "localhost:53", ""},
		{"every name below localhost", "*.localhost:3000", ""},
		{"a name below localhost", "a.localhost:3000", ""},
		{"the sandbox itself, by IPv6", "[::1]:80", ""},
		{"the metadata service", "169.254.169.254:80", ""},
		{"no host", "0.0.0.0:80", ""},
		{"many hosts", "224.0.0.1:80", ""},
		{"an address that stands for a name", "100.64.0.2", ""},
		{"an IPv4 address in an IPv6 one", "[::ffff:10.0.0.1]", ""},
		{"the resolver's port", "example.com:53,raw", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRule(tt.text)
			if tt.want == "" {
				if !errdefs.Is(err, errdefs.Invalid) {
					t.Errorf("ParseRule(%q) = %v, %v; want Invalid", tt.text, r, err)
				}
				return
			}
			if err != nil || r.String() != tt.want {
				t.Errorf("ParseRule(%q) = %v, %v; want %s", tt.text, r, err, tt.want)
			}
			if again, err := ParseRule(r.String()); err != nil || again != r {
				t.Errorf("ParseRule(%q) = %v, %v; want the same rule", r, again, err)
			}
		})
	}
}

func rules(t *testing.T, texts ...string) []Rule {
	t.Helper()
	all, err := Parse(texts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheClosestRuleAllows(t *testing.T) {
	all := rules(t, "*.example.com", "*.a.example.com:443,raw", "b.a.example.com", "example.com:80")
	tests := []struct {
		name string
		host Host
		port uint16
		want string // "" is not allowed
	}{
		{"a name of the domain", "x.example.com", 443, "*.example.com:443"},
		{"a name deep in the domain", "y.x.example.com", 443, "*.example.com:443"},
		{"the longer domain", "x.a.example.com", 443, "*.a.example.com:443,raw"},
		{"the name itself", "b.a.example.com", 443, "b.a.example.com:443"},
		{"the domain's own name has its own rule", "example.com", 80, "example.com:80"},
		{"the domain's own name is not below it", "example.com", 443, ""},
		{"a longer name that ends alike", "badexample.com", 443, ""},
		{"the domain below another", "example.com.evil.net", 443, ""},
		{"an empty label", ".example.com", 443, ""},
		{"another port", "x.example.com", 80, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := Find(all, tt.host, tt.port)
			got := ""
			if ok {
				got = r.String()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if diff := cmp.Diff([]uint16{443}, Ports(all, "b.a.example.com")); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func TestAListHasEachRuleOnce(t *testing.T) {
	all := rules(t, "example.com", "EXAMPLE.com:443", "@npm", "registry.npmjs.org")
	var got []string
	for _, r := range all {
		got = append(got, r.String())
	}
	if diff := cmp.Diff([]string{"example.com:443", "registry.npmjs.org:443"}, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	var many []string
	for i := range maxRules + 1 {
		many = append(many, fmt.Sprintf("h%d.example.com", i))
	}
	for name, texts := range map[string][]string{
		"raw and checked": {"example.com", "example.com,raw"}, "unknown preset": {"@nmp"}, "too many": many,
	} {
		if _, err := Parse(texts); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
	}
}

func TestPresetsAreRulesWithASource(t *testing.T) {
	for name, p := range Presets {
		if _, err := Parse(p.Rules); err != nil || len(p.Rules) == 0 || !strings.HasPrefix(p.Source, "https://") {
			t.Errorf("@%s: %v, source %q", name, err, p.Source)
		}
	}
}

func FuzzRule(f *testing.F) {
	for _, seed := range []string{"example.com:443", "*.example.com,raw", "[::1]:80", "10.0.0.1", "a:b:c", "@x", "*.co.uk", "localhost:80", "LOCALHOST:80,raw", "*.localhost:80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRule(text)
		if err != nil {
			return
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Errorf("%q: rule %q becomes %q, %v", text, r, again, err)
		}
	})
}

func TestARuleIncludesWhatAllowsNoMore(t *testing.T) {
	for _, tt := range []struct {
		wide, narrow string
		want         bool
	}{
		{"example.com", "example.com:443", true},
		{"example.com", "example.com:80", false},
		{"example.com", "www.example.com", false},
		{"example.com", "example.com:443,raw", false},
		{"example.com:443,raw", "example.com", true},
		{"*.example.com", "www.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "*.example.com", true},
		{"*.example.com", "*.b.example.com", true},
		{"*.b.example.com", "*.example.com", false},
		{"www.example.com", "*.example.com", false},
		{"example.com", "*.example.com", false},
		{"*.example.com", "wwwexample.com", false},
		{"10.1.2.3", "10.1.2.3", true},
		{"localhost:8000", "localhost:8000", true},
		{"localhost:8000,raw", "localhost:8000", true},
		{"localhost:8000", "localhost:8001", false},
		{"localhost:8000", "10.1.2.3:8000", false},
		{"10.1.2.3:8000,raw", "localhost:8000", false},
		{"*.example.com:8000,raw", "localhost:8000", false},
	} {
		wide, err := ParseRule(tt.wide)
		narrow, narrowErr := ParseRule(tt.narrow)
		if err != nil || narrowErr != nil {
			t.Fatal(err, narrowErr)
		}
		if got := wide.Includes(narrow); got != tt.want {
			t.Errorf("%s includes %s: %t, want %t", tt.wide, tt.narrow, got, tt.want)
		}
	}
}

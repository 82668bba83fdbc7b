package hostlist

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestHostsAreReadIntoTheirOneForm(t *testing.T) {
	got, err := Parse([]string{"Example.COM", "example.com:443", "*.example.org:80", "@pypi"})
	want := []string{"example.com:443", "*.example.org:80", "pypi.org:443", "files.pythonhosted.org:443"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, text := range []string{"https://example.com", "api-key.agentfense.internal:80", "*.agentfense.internal"} {
		if _, err := Parse([]string{text}); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v, want Invalid", text, err)
		}
	}
}

func TestOnlyHostsWithinTheBoundsPass(t *testing.T) {
	bounds := []string{"example.com:443", "*.example.org:443", "db.example.net:5432,raw", "read.example.net:443,intercept GET /**"}
	for _, tt := range []struct {
		hosts  string
		refuse string // "": none
	}{
		{"example.com", ""},
		{"a.example.org *.b.example.org db.example.net:5432", ""},
		{"example.com example.org", "example.org:443"},
		{"example.com:80", "example.com:80"},
		{"example.com:443,raw", "example.com:443,raw"},
		{"*.example.com", "*.example.com:443"},
		{"example.com,intercept read.example.net,intercept", "read.example.net:443,intercept"},
		{"read.example.net", "read.example.net:443"},
		{"read.example.net:443,raw", "read.example.net:443,raw"},
	} {
		err := CheckWithin(strings.Fields(tt.hosts), bounds)
		switch {
		case tt.refuse == "" && err != nil:
			t.Errorf("%s: %v", tt.hosts, err)
		case tt.refuse != "" && (!errdefs.Is(err, errdefs.Denied) || !strings.HasPrefix(err.Error(), tt.refuse+":")):
			t.Errorf("%s: got %v, want Denied for %s", tt.hosts, err, tt.refuse)
		}
	}
	if err := CheckWithin([]string{"read.example.net,intercept GET /simple/**", "a.example.org,intercept GET /"}, bounds); err != nil {
		t.Error(err)
	}
	if err := CheckWithin([]string{"read.example.net,intercept GET,POST /simple/**"}, bounds); !errdefs.Is(err, errdefs.Denied) {
		t.Errorf("another method: %v, want Denied", err)
	}
	if err := CheckWithin([]string{"example.com"}, nil); !errdefs.Is(err, errdefs.Denied) {
		t.Errorf("without bounds: %v, want Denied", err)
	}
}

// A host that gets a secret is opened in place of a rule that does not open it, and keeps the
// requests of one that does.
func TestAnOpenedHostHasOneRule(t *testing.T) {
	for given, want := range map[string]string{
		"":                                   "api.example.com:443,intercept",
		"a.example.com API.example.com":      "a.example.com api.example.com:443,intercept",
		"api.example.com:80 api.example.com": "api.example.com:80 api.example.com:443,intercept",
		"api.example.com:443,raw @npm":       "@npm api.example.com:443,intercept",
		"api.example.com,intercept *.example.com": "api.example.com,intercept *.example.com",
	} {
		got, err := Opened(strings.Fields(given), "api.example.com")
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, %v; want %q", given, got, err, want)
		}
	}
	for _, host := range []string{"localhost:80", "a b", "*.co.uk"} {
		if _, err := Opened(nil, host); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v, want Invalid", host, err)
		}
	}
}

// A client of a server gets a whole public suffix only where the operator allows it, and no
// wildcard covers the names of secrets.
func TestPublicSuffixesStayWithinBounds(t *testing.T) {
	for bound, within := range map[string]bool{
		"*.github.io,public-suffix": true, "*.io,public-suffix": true, "*.a.github.io": false, "*.com,public-suffix": false, "github.io": false,
	} {
		hosts, err := Parse([]string{"*.github.io,public-suffix"})
		if err != nil {
			t.Fatal(err)
		}
		bounds, err := Parse([]string{bound})
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckWithin(hosts, bounds); (err == nil) != within {
			t.Errorf("within %s: %v", bound, err)
		}
	}
	if _, err := Parse([]string{"*.internal,public-suffix"}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a wildcard over the names of secrets: %v", err)
	}
	if !Intercepts("*.github.io:443,public-suffix,intercept") || Intercepts("*.github.io:443,public-suffix") {
		t.Error("Intercepts does not see behind public-suffix")
	}
}

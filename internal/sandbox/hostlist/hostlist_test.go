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

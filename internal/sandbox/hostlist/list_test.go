package hostlist

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// reaches is a list of hosts, of which b.example ends an hour after noon.
func reaches() List {
	return List{
		AllowNet:      []string{"a.example:443", "b.example:443"},
		AllowNetUntil: map[string]time.Time{"b.example:443": noon.Add(time.Hour)},
	}
}

func TestHostsChange(t *testing.T) {
	hour := func(n int) map[string]time.Time {
		return map[string]time.Time{"b.example:443": noon.Add(time.Duration(n) * time.Hour)}
	}
	for _, tt := range []struct {
		name   string
		change Change
		hosts  []string
		until  map[string]time.Time
	}{
		{"another one", Change{Grant: []string{"c.example:22,raw"}}, []string{"a.example:443", "b.example:443", "c.example:22,raw"}, hour(1)},
		{"a known one for a time takes nothing", Change{Grant: []string{"a.example:443"}, For: time.Hour}, []string{"a.example:443", "b.example:443"}, hour(1)},
		{"one that ends, for longer", Change{Grant: []string{"b.example:443"}, For: 2 * time.Hour}, []string{"a.example:443", "b.example:443"}, hour(2)},
		{"one that ends, for shorter", Change{Grant: []string{"b.example:443"}, For: time.Minute}, []string{"a.example:443", "b.example:443"}, hour(1)},
		{"one that ends, for good", Change{Grant: []string{"b.example:443"}}, []string{"a.example:443", "b.example:443"}, nil},
		{"revoked", Change{Revoke: []string{"b.example:443"}}, []string{"a.example:443"}, nil},
		{"revoked, said with raw", Change{Revoke: []string{"a.example:443,raw"}}, []string{"b.example:443"}, hour(1)},
		{"one in place of another", Change{Revoke: []string{"a.example:443"}, Grant: []string{"a.example:443,raw"}}, []string{"b.example:443", "a.example:443,raw"}, hour(1)},
		{"requests in place of all", Change{Revoke: []string{"a.example:443"}, Grant: []string{"a.example:443,intercept GET /a"}}, []string{"b.example:443", "a.example:443,intercept GET /a"}, hour(1)},
		{"revoked, said with requests", Change{Revoke: []string{"a.example:443,intercept GET /a"}}, []string{"b.example:443"}, hour(1)},
		{"all revoked", Change{Revoke: []string{"a.example:443", "b.example:443"}}, []string{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := reaches()
			if err := r.Change(tt.change, "p", noon); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.hosts, r.AllowNet); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.until, r.AllowNetUntil); diff != "" {
				t.Error(diff)
			}
			if err := r.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHostChangesThatCannotBe(t *testing.T) {
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.0.1:%d", 1000+i)
	}
	for _, tt := range []struct {
		name   string
		change Change
		at     time.Time
		want   errdefs.Kind
	}{
		{"a host that was never granted", Change{Revoke: []string{"c.example:443"}}, noon, errdefs.NotFound},
		{"a host whose grant has ended", Change{Revoke: []string{"b.example:443"}}, noon.Add(time.Hour), errdefs.NotFound},
		{"with and without raw", Change{Grant: []string{"a.example:443,raw"}}, noon, errdefs.Invalid},
		{"with requests and without", Change{Grant: []string{"a.example:443,intercept GET /a"}}, noon, errdefs.Invalid},
		{"too many", Change{Grant: many}, noon, errdefs.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := reaches()
			if err := r.Change(tt.change, "p", tt.at); !errdefs.Is(err, tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestGrantsEnd(t *testing.T) {
	r := reaches()
	if end, ends := r.NextEnd(); !ends || !end.Equal(noon.Add(time.Hour)) {
		t.Errorf("the next end is %s, %t", end, ends)
	}
	if ended := r.DropEnded(noon.Add(time.Hour - 1)); len(ended) != 0 {
		t.Errorf("ended too early: %v", ended)
	}
	if got := r.Hosts(noon.Add(time.Hour)); !slices.Equal(got, []string{"a.example:443"}) {
		t.Errorf("at the end: %v", got)
	}
	if ended := r.DropEnded(noon.Add(time.Hour)); !slices.Equal(ended, []string{"b.example:443"}) {
		t.Errorf("ended: %v", ended)
	}
	if _, ends := r.NextEnd(); ends || !slices.Equal(r.AllowNet, []string{"a.example:443"}) {
		t.Errorf("after the end: %v, another end: %t", r.AllowNet, ends)
	}
}

func TestAnEndOfNoHostIsRefused(t *testing.T) {
	r := reaches()
	r.AllowNetUntil["c.example:443"] = noon
	if err := r.Check(); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("got %v, want Precondition", err)
	}
}

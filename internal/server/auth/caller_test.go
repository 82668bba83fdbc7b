package auth_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/store"
)

func wantKind(t interface {
	Helper()
	Errorf(string, ...any)
}, err error, want errdefs.Kind,
) {
	t.Helper()
	if !errdefs.Is(err, want) {
		t.Errorf("got %v (%v), want %v", err, errdefs.KindOf(err), want)
	}
}

var (
	everybodys = auth.Caller{Name: "default token", Scopes: store.AllScopes}
	alices     = auth.Caller{Name: "token ci", Owner: "alice", Scopes: store.ScopeRead | store.ScopeExec}
)

func TestRequire(t *testing.T) {
	tests := []struct {
		name   string
		caller auth.Caller
		need   store.Scopes
		want   string // "" for allowed
	}{
		{"every scope does everything", everybodys, store.AllScopes, ""},
		{"a scope that is there", alices, store.ScopeExec, ""},
		{"a scope that is not", alices, store.ScopeApply, "token ci: scope apply is missing"},
		{"some are there", alices, store.AllScopes, "token ci: scope manage,apply is missing"},
		{"nobody", auth.Caller{}, store.ScopeRead, "nobody: scope read is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.caller.Require(tt.need)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantKind(t, err, errdefs.Denied)
			if err.Error() != tt.want {
				t.Errorf("got %q, want %q", err, tt.want)
			}
		})
	}
}

// A caller that is bound to an owner meets nothing of another, whatever it
// asks and whatever its scopes are.
func TestABoundCallerIsAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := auth.Caller{
			Name:   "token t",
			Owner:  rapid.StringN(1, -1, -1).Draw(rt, "owner"),
			Scopes: store.Scopes(rapid.IntRange(1, int(store.AllScopes)).Draw(rt, "scopes")),
		}
		other := rapid.String().Filter(func(s string) bool { return s != c.Owner }).Draw(rt, "other")
		wantKind(rt, c.ActFor(other), errdefs.Denied)
		wantKind(rt, c.ReachHost(), errdefs.Denied)
		foreign := c.Reach(other, "codebase", "cb_0123456789abcdef")
		wantKind(rt, foreign, errdefs.NotFound)
		if unknown := id.NoSuch("codebase", "cb_0123456789abcdef"); foreign.Error() != unknown.Error() {
			rt.Errorf("a foreign codebase: %q, an unknown one: %q", foreign, unknown)
		}
		owner, err := c.ListFor("")
		if err != nil || owner != c.Owner {
			rt.Errorf("ListFor(\"\") = %q, %v", owner, err)
		}
		if other != "" {
			_, err := c.ListFor(other)
			wantKind(rt, err, errdefs.Denied)
		}
		if owner, err := c.ListFor(c.Owner); err != nil || owner != c.Owner || c.ActFor(c.Owner) != nil || c.Reach(c.Owner, "codebase", "x") != nil {
			rt.Errorf("its own things are refused: %v", err)
		}
	})
}

func TestACallerWithoutOwnerReachesAll(t *testing.T) {
	for _, owner := range []string{"", "alice", "bob"} {
		if everybodys.ActFor(owner) != nil || everybodys.Reach(owner, "sandbox", "x") != nil {
			t.Errorf("the default token does not reach what %q owns", owner)
		}
		if got, err := everybodys.ListFor(owner); got != owner || err != nil {
			t.Errorf("ListFor(%q) = %q, %v", owner, got, err)
		}
	}
	if err := everybodys.ReachHost(); err != nil {
		t.Error(err)
	}
}

func TestNobodyReachesNothing(t *testing.T) {
	var nobody auth.Caller
	wantKind(t, nobody.ActFor(""), errdefs.Denied)
	wantKind(t, nobody.Reach("", "sandbox", "x"), errdefs.NotFound)
	wantKind(t, nobody.ReachHost(), errdefs.Denied)
}

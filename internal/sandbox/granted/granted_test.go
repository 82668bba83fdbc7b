package granted_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/view/policy"
)

var base = []policy.Rule{
	{Pattern: "**", Permission: policy.Read, Source: "base"},
	{Pattern: "f", Permission: policy.View, Origin: policy.OriginFlag, Source: "--view"},
	{Pattern: ".env", Permission: policy.None, Source: "base"},
}

// decide is what the rules say of a path.
func decide(t *testing.T, rules []policy.Rule, path string) policy.Permission {
	t.Helper()
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(vpath.Path("/" + path)).Permission
}

func TestGrantsEnd(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var l granted.Paths
	grant := func(rules []policy.Rule, path string, p policy.Permission, lasts time.Duration) []policy.Rule {
		t.Helper()
		next, err := l.ChangeGrants(granted.Change{Path: vpath.Path("/" + path), Permission: p, For: lasts}, rules, "s", now)
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			return rules
		}
		return next
	}
	want := func(rules []policy.Rule, path string, p policy.Permission) {
		t.Helper()
		if got := decide(t, rules, path); got != p {
			t.Errorf("%s at %s: %s, want %s", path, now.Format(time.TimeOnly), got, p)
		}
	}
	rules := grant(base, "f", policy.Read, time.Minute) // above --view
	want(rules, "f", policy.Read)
	rules = grant(rules, "f", policy.Write, 2*time.Minute) // the wider one replaces it
	rules = grant(rules, "f", policy.Write, time.Second)   // a grant takes nothing
	rules = grant(rules, "f", policy.Read, time.Second)
	rules = grant(rules, ".env", policy.Read, time.Hour) // of exactly this file
	want(rules, "f", policy.Write)
	want(rules, ".env", policy.Read)
	if end, ends := l.NextGrantEnd(); !ends || !end.Equal(now.Add(2*time.Minute)) {
		t.Errorf("the next end is %v, %v", end, ends)
	}
	now = now.Add(2 * time.Minute)
	rules = l.DropEndedGrants(rules, now)
	want(rules, "f", policy.View)
	want(rules, ".env", policy.Read)
	if !l.GrantsEnded || !l.WasGranted("/f") || l.WasGranted("/g") || l.WasGranted("/.env") {
		t.Errorf("after the end: %+v", l)
	}
	now = now.Add(time.Hour)
	rules = l.DropEndedGrants(rules, now)
	want(rules, ".env", policy.None)
	if l.WasGranted("/.env") {
		t.Error("a grant to read lets changes be applied")
	}
	if err := l.CheckGrants(); err != nil {
		t.Error(err)
	}
}

func TestGrantsWithoutAnEnd(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var l granted.Paths
	dir := granted.Change{Path: "/src", Dir: true, Permission: policy.Write}
	rules, err := l.ChangeGrants(dir, base, "s", now)
	if err != nil || decide(t, rules, "src/a/b") != policy.Write {
		t.Fatalf("%v, %v", rules, err)
	}
	short := dir
	short.For = time.Minute
	if again, err := l.ChangeGrants(short, rules, "s", now); again != nil || err != nil {
		t.Errorf("a grant for a time beside one without an end: %v, %v", again, err)
	}
	dir.Permission = policy.None
	left, err := l.ChangeGrants(dir, rules, "s", now)
	if err != nil || decide(t, left, "src/a/b") != policy.Read {
		t.Errorf("revoked: %v, %v", left, err)
	}
	if _, err := l.ChangeGrants(dir, left, "s", now); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	l.RememberOnce("/once", now)
	if !l.WasGranted("/once") || decide(t, l.DropEndedGrants(left, now), "once") != policy.Read {
		t.Error("what was opened once is not remembered, or stays granted")
	}
}

// A client of the API may give a rule the origin and priority of a grant, but not its source.
func TestRuleLikeAGrantIsNotRevoked(t *testing.T) {
	for _, source := range []string{"request", "", "policy grants", "policy granted until now"} {
		var l granted.Paths
		like := policy.Rule{Pattern: "/f", Permission: policy.Read, Type: policy.File, Priority: 2, Origin: policy.OriginFlag, Source: source}
		rules := append(slices.Clone(base), like)
		if len(l.ListGrants(rules)) != 0 {
			t.Errorf("%q: the rule is listed as a grant", source)
		}
		c := granted.Change{Path: "/f", Permission: policy.Write}
		next, err := l.ChangeGrants(c, rules, "s", time.Unix(1_000_000, 0))
		if err != nil || !slices.Contains(next, like) {
			t.Errorf("%q: granted: %v, %v", source, next, err)
		}
		c.Permission = policy.None
		left, err := l.ChangeGrants(c, next, "s", time.Unix(1_000_000, 0))
		if err != nil || !slices.Contains(left, like) {
			t.Errorf("%q: revoked: %v, %v", source, left, err)
		}
		if _, err := l.ChangeGrants(c, left, "s", time.Unix(1_000_000, 0)); !errdefs.Is(err, errdefs.NotFound) {
			t.Errorf("%q: revoked again: %v", source, err)
		}
	}
}

func TestAWeakerGrantIsThereAfterAStrongerOne(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	long := granted.Change{Path: "/f", Permission: policy.Read}
	short := granted.Change{Path: "/f", Permission: policy.Write, For: time.Minute}
	for _, order := range [][]granted.Change{{long, short}, {short, long}} {
		var l granted.Paths
		rules := base
		for _, c := range order {
			var err error
			if rules, err = l.ChangeGrants(c, rules, "s", now); err != nil {
				t.Fatal(err)
			}
		}
		if got := decide(t, rules, "f"); got != policy.Write {
			t.Errorf("%s first: %s, want write", order[0].Permission, got)
		}
		if all := l.ListGrants(rules); len(all) != 2 {
			t.Errorf("%s first: %v, want both", order[0].Permission, all)
		}
		rules = l.DropEndedGrants(rules, now.Add(time.Minute))
		if got := decide(t, rules, "f"); got != policy.Read {
			t.Errorf("%s first, later: %s, want read", order[0].Permission, got)
		}
	}
}

// Records of development versions have grants that all have the priority 1.
func TestAGrantJoinsOneOfEqualPriority(t *testing.T) {
	var l granted.Paths
	old := policy.Rule{Pattern: "/f", Permission: policy.Read, Type: policy.File, Priority: 1, Origin: policy.OriginFlag, Source: "policy grant"}
	rules, err := l.ChangeGrants(granted.Change{Path: "/f", Permission: policy.Write, For: time.Minute}, append(slices.Clone(base), old), "s", time.Unix(1_000_000, 0))
	if err != nil || decide(t, rules, "f") != policy.Write {
		t.Errorf("%v, %v", rules, err)
	}
	if rules = l.DropEndedGrants(rules, time.Unix(2_000_000, 0)); decide(t, rules, "f") != policy.Read {
		t.Errorf("later: %v", rules)
	}
}

func TestAGrantOfAFileTakesNothingOfItsDirectory(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var l granted.Paths
	rules := append(slices.Clone(base), policy.Rule{Pattern: "src/.env", Permission: policy.None, Source: "base"})
	grant := func(c granted.Change) error {
		next, err := l.ChangeGrants(c, rules, "s", now)
		if next != nil {
			rules = next
		}
		return err
	}
	if err := grant(granted.Change{Path: "/src", Dir: true, Permission: policy.Write}); err != nil {
		t.Fatal(err)
	}
	if err := grant(granted.Change{Path: "/src/a", Permission: policy.Read}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("a weaker grant of a file in it: %v", err)
	}
	if err := grant(granted.Change{Path: "/src/gen", Dir: true, Permission: policy.Read}); err != nil {
		t.Errorf("a weaker grant of a directory in it: %v", err)
	}
	if err := grant(granted.Change{Path: "/src/.env", Permission: policy.Read}); err != nil {
		t.Errorf("a file that a rule hides: %v", err)
	}
	for path, want := range map[string]policy.Permission{"src/a": policy.Write, "src/gen/a": policy.Write, "src/.env": policy.Read} {
		if got := decide(t, rules, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestManyGrantsWithAnEndAreRefusedAndNotForgotten(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var l granted.Paths
	rules := base
	var err error
	for i := range 1000 {
		if rules, err = l.ChangeGrants(granted.Change{Path: vpath.Path(fmt.Sprintf("/f%d", i)), Permission: policy.Write, For: time.Minute}, rules, "s", now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.ChangeGrants(granted.Change{Path: "/g", Permission: policy.Write, For: time.Minute}, rules, "s", now); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("one more: %v", err)
	}
	l.RememberOnce("/once", now)
	if rules = l.DropEndedGrants(rules, now.Add(time.Minute)); len(rules) != len(base) {
		t.Errorf("%d rules stay after their end", len(rules)-len(base))
	}
	if len(l.Grants) != 1000 || !l.WasGranted("/once") || l.WasGranted("/f0") {
		t.Errorf("%d are remembered, want 1000 without the oldest", len(l.Grants))
	}
}

// What was opened once in a mount is not taken for a path of the workspace or of another mount.
func TestWhatWasOpenedInAMountIsApart(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var l granted.Paths
	l.RememberOnceIn("data", "/f", now)
	l.RememberOnceIn("", "/g", now)
	c := l.CloneGrants()
	c.RememberOnceIn("data", "/late", now)
	data, other := l.OfMount("data"), l.OfMount("other")
	for _, tt := range []struct {
		paths *granted.Paths
		path  vpath.Path
		want  bool
	}{
		{&data, "/f", true},
		{&l, "/f", false},
		{&other, "/f", false},
		{&l, "/g", true},
		{&data, "/g", false},
		{&data, "/late", false},
	} {
		if got := tt.paths.WasGranted(tt.path); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.path, got, tt.want)
		}
	}
	if err := l.CheckGrants(); err != nil {
		t.Error(err)
	}
	l.InMounts["data"][0].Until = time.Time{}
	if err := l.CheckGrants(); err == nil {
		t.Error("a damaged grant of a mount is not refused")
	}
}

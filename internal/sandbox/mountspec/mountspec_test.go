package mountspec_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, text string
		want       mountspec.Spec
	}{
		{"a directory", "/a", mountspec.Spec{Source: "/a", Mode: "ro"}},
		{"a relative directory", "../a b", mountspec.Spec{Source: "../a b", Mode: "ro"}},
		{"a place", "a:/b/../c/", mountspec.Spec{Source: "a", Target: "/c", Mode: "ro"}},
		{"a mode", "a:bind", mountspec.Spec{Source: "a", Mode: "bind"}},
		{"a place and a mode", "a:/b:ro", mountspec.Spec{Source: "a", Target: "/b", Mode: "ro"}},
		{"a comma in a path", "a,b:/c,d", mountspec.Spec{Source: "a,b", Target: "/c,d", Mode: "ro"}},
		{"the long form", "a:b,dst=/c:d,e,name=n,mode=bind", mountspec.Spec{Source: "a:b", Target: "/c:d,e", Name: "n", Mode: "bind"}},
		{"copy on write", "a:cow", mountspec.Spec{Source: "a", Mode: mountspec.CopyOnWrite}},
		{"a preset", "a:/b:development", mountspec.Spec{Source: "a", Target: "/b", Mode: "development"}},
		{"a policy file", "a,policy=x.yaml,dst=/b", mountspec.Spec{Source: "a", Target: "/b", Mode: mountspec.PolicyFile, Policy: "x.yaml"}},
		{"the long form in another order", "a,mode=ro,dst=/c", mountspec.Spec{Source: "a", Target: "/c", Mode: "ro"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mountspec.Parse(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse(%q) differs (-want +got):\n%s", tt.text, diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a:policy":                          `mode "policy"`,
		"a,policy=":                         "names no file",
		"a,mode=ro,policy=f":                "exclude",
		"a,policy=f,mode=bind":              "exclude",
		"a:developmen":                      "development",
		"":                                  "names no directory",
		":/b":                               "names no directory",
		"a:":                                "want SRC[:DST]",
		"a:b:c":                             "want SRC[:DST]",
		"a:/b:ro:ro":                        "want SRC[:DST]",
		"a:/b:":                             "want SRC[:DST]",
		"a:/b:rw":                           `"rw"`,
		"a:b":                               `mode "b"`,
		"a:binds":                           "bind",
		"a\x00":                             "NUL",
		",dst=/b":                           "names no directory",
		"a,dst=b":                           "absolute",
		"a,dst=/b,dst=/c":                   "twice",
		"a,dts=/b":                          "dst",
		"a,name=Tools":                      "want 1 to 64",
		"a,name=workspace":                  "the workspace's",
		"a,name=..":                         "want 1 to 64",
		"a,name=,dst=/b":                    "want 1 to 64",
		"a,mode=":                           "mode",
		"a,dst=/b,mode=full":                "mode",
		"a,name=" + strings.Repeat("a", 65): "want 1 to 64",
	} {
		_, err := mountspec.Parse(text)
		if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v, want Invalid with %q", text, err, want)
		}
	}
}

func TestNames(t *testing.T) {
	specs := []mountspec.Spec{
		{Target: "/opt/bin"},
		{Target: "/a/Bin"},
		{Target: "/b/bin", Name: "bin-2"},
		{Target: "/c/Größe x"},
		{Target: "/d/..."},
		{Target: "/e/workspace"},
		{Target: "/" + strings.Repeat("y", 200)},
	}
	if err := mountspec.Names(specs); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range specs {
		got = append(got, s.Name)
	}
	want := []string{"bin", "bin-3", "bin-2", "gr--e-x", "mount", "mount-2", strings.Repeat("y", 56)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
	if err := mountspec.Names([]mountspec.Spec{{Name: "a"}, {Name: "a"}}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("two mounts of one name: %v", err)
	}
}

func TestCheckPlaces(t *testing.T) {
	const workspace = "/home/me/project"
	for _, good := range [][]string{nil, {"/opt/a", "/opt/b"}, {"/opt/a", "/opt/ab"}, {"/home/me/other"}, {"/run/x"}, {"/usr/lib/x"}} {
		if err := mountspec.CheckPlaces(workspace, placesAt(mountspec.Bind, good)); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, nested := range [][]string{{"/home/me"}, {"/home"}, {"/a", "/a/b"}, {"/a/b", "/c", "/a"}, {"/home/me", "/home/me/.nvm"}} {
		if err := mountspec.CheckPlaces(workspace, placesAt(mountspec.ReadOnly, nested)); err != nil {
			t.Errorf("%q with a view: %v", nested, err)
		}
	}
	for _, bad := range [][]string{
		{"/"},
		{"/proc"},
		{"/proc/x"},
		{"/sys"},
		{"/dev/shm"},
		{"/run"},
		{"/run/agentfense/x"},
		{"opt"},
		{"/opt/"},
		{"/opt/../etc"},
		{workspace},
		{"/home/me"},
		{"/home"},
		{workspace + "/x"},
		{"/a", "/a"},
		{"/a", "/a/b"},
		{"/a/b", "/c", "/a"},
	} {
		if err := mountspec.CheckPlaces(workspace, placesAt(mountspec.Bind, bad)); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %v, want Invalid", bad, err)
		}
	}
	for _, bad := range [][]string{{"/"}, {"/run"}, {workspace}, {workspace + "/x"}, {"/a", "/a"}} {
		if err := mountspec.CheckPlaces(workspace, placesAt(mountspec.CopyOnWrite, bad)); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q with a view: %v, want Invalid", bad, err)
		}
	}
}

func placesAt(mode mountspec.Mode, targets []string) (places []mountspec.Place) {
	for _, t := range targets {
		places = append(places, mountspec.Place{Target: t, Mode: mode})
	}
	return places
}

func TestPlacesInAMountAreTheOutermost(t *testing.T) {
	targets := []string{"/home/me/project", "/home/me", "/home/me/.nvm/x", "/home/me/.nvm", "/home/metoo", "/opt"}
	if diff := cmp.Diff([]vpath.Path{"/project", "/.nvm"}, mountspec.PlacesIn("/home/me", targets)); diff != "" {
		t.Error(diff)
	}
	if got := mountspec.PlacesIn("/home/me/.nvm", targets); len(got) != 1 || got[0] != "/x" {
		t.Errorf("in the inner one: %q", got)
	}
}

func TestRulesOfAMountAreThoseThatWereGiven(t *testing.T) {
	rules := []policy.Rule{{Pattern: "w", Permission: policy.Write}, {Pattern: "s", Permission: policy.None, Own: true}, {Pattern: "v", Permission: policy.View}}
	for _, given := range [][]policy.Rule{rules, rules[1:]} {
		got, err := mountspec.Spec{Mode: mountspec.PolicyFile, Policy: "f"}.Rules(func(string) ([]policy.Rule, error) { return given, nil })
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(given)
		if len(given) < len(rules) { // nothing can be written, and so nothing made in place of what is hidden
			want[0].Own = false
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rules differ (-want +got):\n%s", diff)
		}
	}
	if !rules[1].Own {
		t.Error("the given rules were changed")
	}
}

func TestStoredMountsHaveWhatTheirModeNeeds(t *testing.T) {
	for _, word := range mountspec.Words() {
		rules, err := mountspec.Spec{Mode: mountspec.Mode(word)}.Rules(nil)
		if err != nil || (len(rules) > 0) != mountspec.Mode(word).HasRules() {
			t.Errorf("%s has %d rules, %v", word, len(rules), err)
		}
		m := mountspec.Mount{Name: "m", Mode: mountspec.Mode(word), Rules: rules}
		writable := word != "ro" && word != "bind" && word != "read-only" && word != "view-only"
		if mountspec.Writable(rules) != writable || m.Mode.HasRules() && (m.Check() == nil) == writable {
			t.Errorf("%s: can be written to is %t, want %t; without an inode of its source: %v", word, mountspec.Writable(rules), writable, m.Check())
		}
		if writable {
			m.Dev, m.Ino, m.EarlierRules = 1, 2, [][]policy.Rule{rules}
		}
		if err := m.Check(); err != nil || m.HasDelta() != writable {
			t.Errorf("%s: has a delta is %t, %v", word, m.HasDelta(), err)
		}
		if m.Rules = nil; m.Mode.HasRules() && m.Check() == nil {
			t.Errorf("a stored mount of mode %s needs no rules", word)
		}
	}
	// Before mounts could be written to, rules that permitted it were stored as ones to read.
	old := mountspec.Mount{Name: "m", Mode: "development", Rules: []policy.Rule{{Pattern: "**", Permission: policy.Read}}}
	if err := old.Check(); err != nil || old.HasDelta() {
		t.Errorf("a mount that was stored earlier: %v, has a delta is %t", err, old.HasDelta())
	}
	for _, bad := range []mountspec.Mount{
		{Name: "m", Mode: "ro", Ino: 1},
		{Name: "m", Mode: "bind", Ino: 1},
		{Ino: 1},
		{Name: "m", Mode: "ro", Born: 1},
		{Name: "m", Mode: "development", Rules: old.Rules, EarlierRules: [][]policy.Rule{old.Rules}},
	} {
		if err := bad.Check(); !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("%+v: %v, want Precondition", bad, err)
		}
	}
}

// FuzzParse checks that whatever Parse accepts is well formed, and is the same when it is
// written in the long form.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a", "a:/b", "a:/b:ro", "a:bind", "a,dst=/b,name=n,mode=ro", "a:b,dst=/c:d", "a,,dst=/b", "a,dst=/b,x", "a,policy=f,name=n", ":", ",", "a,dst=/\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := mountspec.Parse(text)
		if err != nil {
			if !errdefs.Is(err, errdefs.Invalid) {
				t.Fatalf("Parse(%q): %v", text, err)
			}
			return
		}
		if s.Source == "" || strings.Contains(s.Source+s.Target, "\x00") || s.Target != "" && (!path.IsAbs(s.Target) || path.Clean(s.Target) != s.Target) {
			t.Fatalf("Parse(%q): %+v", text, s)
		}
		named := []mountspec.Spec{s}
		if named[0].Target == "" {
			named[0].Target = path.Clean("/x/" + path.Base(s.Source))
		}
		if err := mountspec.Names(named); err != nil || mountspec.CheckName(named[0].Name) != nil {
			t.Fatalf("Parse(%q): name %q, %v", text, named[0].Name, err)
		}
		long := named[0].Source + ",dst=" + named[0].Target + ",name=" + named[0].Name
		if s.Mode == mountspec.PolicyFile {
			long += ",policy=" + s.Policy
		} else {
			long += ",mode=" + string(s.Mode)
		}
		again, err := mountspec.Parse(long)
		if err != nil || again != named[0] {
			t.Fatalf("Parse(%q): %+v, %v; want %+v of %q", long, again, err, named[0], text)
		}
	})
}

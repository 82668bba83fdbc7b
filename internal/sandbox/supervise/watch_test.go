package supervise

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func newWatch(path string, recursive bool) *watch {
	return &watch{path: vpath.Path(path), recursive: recursive, wake: make(chan struct{}, 1), pending: map[vpath.Path]api.ChangeKind{}}
}

func policyOf(t *testing.T, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func toldOf(w api.Watched) []string {
	var told []string
	for _, c := range w.Changes {
		told = append(told, string(c.Kind)+" "+c.Path)
	}
	return told
}

func TestWatchTellsOfItsPathsAlone(t *testing.T) {
	everything := policyOf(t, policy.Rule{Pattern: "**", Permission: policy.Read})
	for _, tt := range []struct {
		name, path string
		recursive  bool
		changes    []fusefs.Change
		want       []string
	}{
		{
			"all, by path", "/", true,
			[]fusefs.Change{{Path: "/d/f", Kind: api.Modified}, {Path: "/a", Kind: api.Created}, {Path: "/b", Kind: api.Deleted}},
			[]string{"created a", "deleted b", "modified d/f"},
		},
		{
			"what is in a directory", "/d", false,
			[]fusefs.Change{{Path: "/d/f", Kind: api.Modified}, {Path: "/d/e/f", Kind: api.Created}, {Path: "/dd", Kind: api.Deleted}, {Path: "/d", Kind: api.Modified}},
			[]string{"modified d", "modified d/f"},
		},
		{
			"what becomes of the directories above", "/d/e", true,
			[]fusefs.Change{{Path: "/d", Kind: api.Modified}, {Path: "/d/g", Kind: api.Deleted}, {Path: "/x", To: "/d", Dir: true, Kind: api.Renamed}},
			[]string{"created d/e"},
		},
		{
			"a rename is a deletion and a creation", "/", true,
			[]fusefs.Change{{Path: "/a", To: "/b", Kind: api.Renamed}, {Path: "/c", To: "/d", Kind: api.Renamed, Over: true}},
			[]string{"deleted a", "created b", "deleted c", "modified d"},
		},
		{
			"the net of what follows at once", "/", true,
			[]fusefs.Change{
				{Path: "/new", Kind: api.Created},
				{Path: "/new", Kind: api.Modified},
				{Path: "/none", Kind: api.Created},
				{Path: "/none", Kind: api.Deleted},
				{Path: "/again", Kind: api.Deleted},
				{Path: "/again", Kind: api.Created},
				{Path: "/gone", Kind: api.Modified},
				{Path: "/gone", Kind: api.Deleted},
			},
			[]string{"modified again", "deleted gone", "created new"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := watchTable{toggle: func(string, bool) {}}
			w := newWatch(tt.path, tt.recursive)
			if err := table.add(w); err != nil {
				t.Fatal(err)
			}
			for _, c := range tt.changes {
				table.note("", c)
			}
			if diff := cmp.Diff(tt.want, toldOf(w.take(everything))); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if again := w.take(everything); len(again.Changes) > 0 || again.Lost || w.bytes != 0 {
				t.Errorf("told again: %+v, %d bytes are pending", again, w.bytes)
			}
		})
	}
}

func TestWatchNamesNothingThatIsNotGranted(t *testing.T) {
	w := newWatch("/", true)
	for _, p := range []vpath.Path{"/listed", "/hidden", "/unmatched", "/way", "/way/in"} {
		w.note(p, api.Created)
	}
	p := policyOf(t,
		policy.Rule{Pattern: "/listed", Permission: policy.View}, policy.Rule{Pattern: "/hidden", Permission: policy.None}, policy.Rule{Pattern: "/way/in", Permission: policy.Read})
	if diff := cmp.Diff([]string{"created listed", "created way/in"}, toldOf(w.take(p))); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestWatchIsBounded(t *testing.T) {
	everything := policyOf(t, policy.Rule{Pattern: "**", Permission: policy.Read})
	w := newWatch("/", true)
	for i := range maxPending {
		w.note(vpath.Path(fmt.Sprintf("/f%05d", i)), api.Created)
	}
	all := 0
	for {
		told := w.take(everything)
		if len(told.Changes) > api.MaxEffects || told.Lost {
			t.Fatalf("%d changes at once, lost %v", len(told.Changes), told.Lost)
		}
		if all += len(told.Changes); len(told.Changes) == 0 {
			break
		}
	}
	if all != maxPending {
		t.Errorf("%d of %d are told", all, maxPending)
	}
	for name, flood := range map[string]func(){
		"paths": func() {
			for i := range maxPending + 1 {
				w.note(vpath.Path(fmt.Sprintf("/f%05d", i)), api.Created)
			}
		},
		"bytes": func() {
			for i := range maxPendingBytes / 4000 {
				w.note(vpath.Path(fmt.Sprintf("/%05d%s", i, strings.Repeat("x/", 2000)+"x")), api.Created)
			}
		},
	} {
		flood()
		w.note("/after", api.Created)
		if told := w.take(everything); !told.Lost || len(told.Changes) != 1 || told.Changes[0].Path != "after" {
			t.Errorf("after too many %s: lost %v, %d changes", name, told.Lost, len(told.Changes))
		}
	}
	on := map[string]bool{}
	table := watchTable{toggle: func(mount string, is bool) { on[mount] = is }}
	for range maxWatches {
		if err := table.add(newWatch("/", true)); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.add(w); !errdefs.Is(err, errdefs.Exhausted) || !on[""] {
		t.Errorf("one watch too many: %v", err)
	}
	for w := range table.all {
		table.remove(w)
	}
	if on[""] {
		t.Error("nobody watches, and writes are told")
	}
}

func TestWatchIsOfOneView(t *testing.T) {
	everything := policyOf(t, policy.Rule{Pattern: "**", Permission: policy.Read})
	on := map[string]bool{}
	table := watchTable{toggle: func(mount string, is bool) { on[mount] = is }}
	workspace, data := newWatch("/", true), newWatch("/", true)
	data.mount = "data"
	for _, w := range []*watch{workspace, data} {
		if err := table.add(w); err != nil {
			t.Fatal(err)
		}
	}
	table.note("", fusefs.Change{Path: "/w", Kind: api.Created})
	table.note("data", fusefs.Change{Path: "/d", Kind: api.Created})
	table.note("other", fusefs.Change{Path: "/o", Kind: fusefs.Lost})
	for _, tt := range []struct {
		w    *watch
		want api.Changed
	}{{workspace, api.Changed{Path: "w", Kind: api.Created}}, {data, api.Changed{Mount: "data", Path: "d", Kind: api.Created}}} {
		if diff := cmp.Diff(api.Watched{Changes: []api.Changed{tt.want}}, tt.w.take(everything)); diff != "" {
			t.Errorf("told in %q (-want +got):\n%s", tt.w.mount, diff)
		}
	}
	table.remove(data)
	if diff := cmp.Diff(map[string]bool{"": true, "data": false}, on); diff != "" {
		t.Errorf("watched sources (-want +got):\n%s", diff)
	}
}

package apply_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// withMount is a bench of a sandbox's workspace, and one of a mount of it.
func withMount(t *testing.T, ofWorkspace, ofMount tree, rules ...policy.Rule) (workspace, mount *bench) {
	t.Helper()
	workspace = &bench{t: t, home: openHome(t), dir: t.TempDir()}
	mount = &bench{t: t, home: workspace.home, dir: t.TempDir()}
	build(t, workspace.dir, ofWorkspace)
	build(t, mount.dir, ofMount)
	r := recordOf(t, workspace.home, workspace.dir, "fix")
	source := recordOf(t, workspace.home, mount.dir, "").Source
	if len(rules) == 0 {
		rules = r.Rules
	}
	r.Mounts = []record.Mount{
		{Source: "/usr", Target: "/opt/usr", Name: "usr", Mode: "ro"},
		{Source: source.Path, Target: "/opt/data", Name: "data", Mode: "policy", Rules: rules, Dev: source.Dev, Ino: source.Ino, Born: source.Born},
	}
	var err error
	if workspace.box, err = workspace.home.Create(r); err == nil {
		mount.box, err = workspace.box.InMount("data")
	}
	if err != nil {
		t.Fatal(err)
	}
	return workspace, mount
}

func TestAMountAndTheWorkspaceAreAppliedApart(t *testing.T) {
	workspace, mount := withMount(t, tree{"a": "1"}, tree{"a": "1", "b": "1"})
	workspace.agent(func(a *agent) { a.write("/a", "of the workspace") })
	mount.agent(func(a *agent) { a.write("/a", "of the mount"); a.remove("/b") })
	if p, err := review.CountPending(workspace.box); err != nil || p.Changes != 3 || p.InMounts != 2 {
		t.Errorf("%+v are pending, %v", p, err)
	}
	digest := mount.shown("")
	if err := manifest.SetLastShown(mount.box, digest); err != nil {
		t.Fatal(err)
	}
	if last, err := manifest.LastShown(workspace.box); err != nil || last != "" {
		t.Errorf("of the workspace was shown last %q, %v", last, err)
	}
	mount.apply()
	if diff := cmp.Diff(tree{"a": "of the mount"}, snapshot(t, mount.dir)); diff != "" {
		t.Errorf("source of the mount (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(tree{"a": "1"}, snapshot(t, workspace.dir)); diff != "" {
		t.Errorf("source of the workspace (-want +got):\n%s", diff)
	}
	if got := workspace.changes(); len(got) != 1 || len(mount.changes()) != 0 {
		t.Errorf("the workspace still has %q, the mount %q", got, mount.changes())
	}
	if _, err := apply.Discard(workspace.box, apply.DiscardOptions{}); err != nil {
		t.Fatal(err)
	}
	if changed, err := review.HasChanges(workspace.box); err != nil || changed {
		t.Errorf("the sandbox has changes: %t, %v", changed, err)
	}
	log, err := os.ReadFile(mount.box.AuditPath())
	if err != nil || !strings.Contains(string(log), `"event":"applied","mount":"data","paths":["/a","/b"]`) || !strings.Contains(string(log), `"event":"discarded","paths":["/a"]`) {
		t.Errorf("audit log, %v:\n%s", err, log)
	}
}

// A mount shows no FIFO of its source, so that one which was applied would disappear.
func TestNoFIFOIsAppliedToAMount(t *testing.T) {
	_, mount := withMount(t, nil, tree{"a": "1"})
	mount.agent(func(a *agent) {
		_, err := a.stack.Mknod("/pipe", unix.S_IFIFO|0o644)
		a.check(err)
		a.write("/a", "2")
	})
	r := mount.apply()
	i := slices.IndexFunc(r.Paths, func(p apply.PathResult) bool { return p.Path == "/pipe" })
	if i < 0 || r.Paths[i].Outcome != apply.Kept || !strings.Contains(r.Paths[i].Reason, "shows none") {
		t.Errorf("%+v", r.Paths)
	}
	if diff := cmp.Diff(tree{"a": "2"}, snapshot(t, mount.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

// What is applied to a mount never touches the source of the workspace in it.
func TestAMountDoesNotApplyToTheWorkspace(t *testing.T) {
	workspace, mount := withMount(t, nil, tree{"a": "1"})
	inner := filepath.Join(mount.dir, "repo")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	source, err := workspace.home.ResolveSource(inner)
	if err == nil {
		err = workspace.box.Rebase(source)
	}
	if err != nil {
		t.Fatal(err)
	}
	if mount.box, err = workspace.box.InMount("data"); err != nil {
		t.Fatal(err)
	}
	reserved, err := mount.box.Reserved(mount.box.Record().Source)
	if err != nil || !slices.Equal(reserved, []vpath.Path{"/repo"}) {
		t.Errorf("reserved are %q, %v", reserved, err)
	}
	mount.agent(func(a *agent) { a.write("/repo/f", "over the workspace") })
	if _, err := apply.Changes(t.Context(), mount.box, apply.Options{}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("apply: %v, want Precondition", err)
	}
	if diff := cmp.Diff(tree{"a": "1", "repo/": ""}, snapshot(t, mount.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

func TestTheSourceOfAMountMayBeMadeAgain(t *testing.T) {
	workspace, mount := withMount(t, nil, tree{"a": "1"})
	mount.agent(func(a *agent) { a.write("/new", "n") })
	if err := os.Rename(mount.dir, mount.dir+".old"); err != nil {
		t.Fatal(err)
	}
	build(t, mount.dir, tree{"other": ""})
	if replaced, why := mount.box.SourceLost(); !replaced || why == nil {
		t.Errorf("the source is replaced: %t, %v", replaced, why)
	}
	if _, err := apply.Changes(t.Context(), mount.box, apply.Options{}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("apply: %v, want Precondition", err)
	}
	if err := changes.Rebase(mount.box); err != nil {
		t.Fatal(err)
	}
	mount.apply()
	if diff := cmp.Diff(tree{"other": "", "new": "n"}, snapshot(t, mount.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	now, err := workspace.home.Open("fix")
	if err != nil || !now.Parts()[1].Record().Source.IsSame(mount.box.Record().Source) || now.Record().Source != workspace.box.Record().Source {
		t.Errorf("the record has %+v, %v", now.Record(), err)
	}
}

func TestOnlyAMountWithADeltaHasChanges(t *testing.T) {
	workspace, mount := withMount(t, nil, nil)
	if s, err := workspace.box.InMount(""); s != workspace.box || err != nil {
		t.Errorf("no name: %v", err)
	}
	if _, err := workspace.box.InMount("usr"); !errdefs.Is(err, errdefs.Unsupported) {
		t.Errorf("a mount that can only be read: %v, want Unsupported", err)
	}
	if _, err := workspace.box.InMount("none"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("no mount: %v, want NotFound", err)
	}
	if err := mount.box.Update(func(*record.Record) error { return nil }); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("an update of the record by the mount: %v, want Internal", err)
	}
	if err := workspace.box.ForgetMount(); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("the changes of the workspace: %v, want Internal", err)
	}
	if got := mount.box.Ref(); got != "fix --in data" {
		t.Errorf("Ref = %q", got)
	}
}

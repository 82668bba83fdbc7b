package snapshot_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// A fork has the settings of the other sandbox, but no address and no host user of it.
func TestAForkHasItsOwnAddress(t *testing.T) {
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	must(t, err)
	source, err := home.ResolveSource(t.TempDir())
	must(t, err)
	ports, err := published.Parse([]string{"8080"})
	must(t, err)
	sb, err := home.Create(record.Record{
		Name: "fix", Source: source, Workspace: string(source.Path), Runtime: record.RuntimeBwrap, Net: record.NetNamed,
		Rules: []policy.Rule{{Pattern: "**", Permission: policy.Read}},
		Ports: published.Ports{Publish: ports},
	})
	must(t, err)
	forks, err := snapshot.Fork(sb, snapshot.ForkOptions{Names: []string{"a", "b"}, Freeze: snapshot.FreezeStopped(sb)})
	must(t, err)
	seen := map[string]bool{}
	for _, s := range append(forks, sb) {
		r := s.Record()
		if r.PublishAddress == "" || seen[r.PublishAddress] || seen[string(r.ID)] || len(r.Publish) != 1 {
			t.Errorf("%s has the address %q, the id %s and the ports %v", r.Name, r.PublishAddress, r.ID, r.Publish)
		}
		seen[r.PublishAddress], seen[string(r.ID)] = true, true
	}
}

// A fork with another network has changes that were made with the network of the other sandbox.
func TestAForkKnowsWhatTheOtherSandboxCouldReach(t *testing.T) {
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	must(t, err)
	source, err := home.ResolveSource(t.TempDir())
	must(t, err)
	sb, err := home.Create(record.Record{
		Name: "fix", Source: source, Workspace: string(source.Path), Runtime: record.RuntimeBwrap, Net: record.NetNamed,
		Rules: []policy.Rule{{Pattern: "**", Permission: policy.Read}}, List: hostlist.List{AllowNet: []string{"example.com:443"}},
	})
	must(t, err)
	forks, err := snapshot.Fork(sb, snapshot.ForkOptions{
		Names: []string{"a"}, Freeze: snapshot.FreezeStopped(sb),
		Change: func(r *record.Record) { r.Net, r.AllowNet = record.NetNone, nil },
	})
	must(t, err)
	if was := forks[0].Record().Earlier; !slices.Equal(was.AllowNet, []string{"example.com:443"}) || !slices.Equal(was.Nets, []string{record.NetNamed}) {
		t.Errorf("got %+v", was)
	}
}

// A snapshot is of its directory: another one at the same path needs a consent.
func TestASnapshotKnowsItsSource(t *testing.T) {
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	must(t, err)
	dir := filepath.Join(t.TempDir(), "project")
	must(t, os.Mkdir(dir, 0o755))
	source, err := home.ResolveSource(dir)
	must(t, err)
	sb, err := home.Create(record.Record{
		Name: "fix", Source: source, Workspace: dir, Runtime: record.RuntimeBwrap, Net: record.NetNone,
		Rules: []policy.Rule{{Pattern: "**", Permission: policy.Write}},
	})
	must(t, err)
	_, err = snapshot.Take(sb, snapshot.Snapshot{Label: "good"}, snapshot.FreezeStopped(sb))
	must(t, err)
	_, err = snapshot.Restore(sb, "good", false)
	must(t, err)

	must(t, os.Rename(dir, dir+".old"))
	must(t, os.Mkdir(dir, 0o755))
	now, err := home.ResolveSource(dir)
	must(t, err)
	must(t, sb.Rebase(now))
	fork := snapshot.ForkOptions{Names: []string{"a"}, Snapshot: "good"}
	_, err = snapshot.Restore(sb, "good", false)
	if _, is := errors.AsType[*snapshot.ReplacedError](err); !is || !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("restore: %v", err)
	}
	if _, err := snapshot.Fork(sb, fork); err == nil {
		t.Error("a fork over another directory")
	}
	_, err = snapshot.Restore(sb, "good", true)
	must(t, err)
	fork.Rebase = true
	_, err = snapshot.Fork(sb, fork)
	must(t, err)

	// A list from before has the path alone.
	list := filepath.Join(sb.Dir(), "snapshots.json")
	text, err := os.ReadFile(list)
	must(t, err)
	must(t, os.WriteFile(list, regexp.MustCompile(`(?m)^ *"(dev|ino|born)": .*\n`).ReplaceAll(regexp.MustCompile(`("source": "[^"]*"),`).ReplaceAll(text, []byte("$1")), nil), 0o600))
	_, err = snapshot.Restore(sb, "good", false)
	must(t, err)
}

package snapshot_test

import (
	"path/filepath"
	"testing"

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

package present_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestSummariseReadsTheAuditLog(t *testing.T) {
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := home.ResolveSource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	box, err := home.Create(record.Record{
		Name: "fix", Source: source, Workspace: string(source.Path), Runtime: "bwrap", Net: "none",
		Rules: []policy.Rule{{Pattern: "**", Permission: policy.Write, Source: "test"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(box.AuditPath(), audit.Options{Sandbox: "fix", ID: string(box.ID())})
	if err != nil {
		t.Fatal(err)
	}
	denied := func(path, rule string, n int) audit.Event {
		return audit.PermissionDenied{Path: audit.Path(path), Operation: "open", Permission: "none", Rule: audit.Text(rule), RuleSource: "preset development", Count: n}
	}
	err = log.Append(denied("/.env", "**/.env*", 1), denied("/x\n", "", 1), denied("/.env", "**/.env*", 3), denied("/.env.local", "**/.env*", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := present.Summarise(box, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []present.DenialGroup{
		{Rule: "**/.env*", Source: "preset development", Count: 5, Paths: []string{".env", ".env.local"}},
		{Source: "preset development", Count: 1, Paths: []string{`x\x0a`}},
	}
	if diff := cmp.Diff(want, got.Denials); diff != "" {
		t.Errorf("denials (-want +got):\n%s", diff)
	}
	if late, err := present.Summarise(box, 100); err != nil || len(late.Denials) != 0 {
		t.Errorf("denials of a later run: %v, %v", late.Denials, err)
	}
}

func TestASummaryCountsByStatus(t *testing.T) {
	s := present.Summary{Files: []review.FileDiff{
		{Path: "/.envrc", Status: changes.Added}, {Path: "/f", Status: changes.Modified}, {Path: "/own", Status: changes.Added, Own: true},
	}}
	if a, m, d, own := s.CountStatus(changes.Added), s.CountStatus(changes.Modified), s.CountStatus(changes.Deleted), s.CountOwn(); a != 2 || m != 1 || d != 0 || own != 1 {
		t.Errorf("%d added, %d modified, %d deleted, %d own; want 2, 1, 0, 1", a, m, d, own)
	}
}

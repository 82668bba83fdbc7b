package present_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

func TestSummariseReadsTheAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := audit.Open(path, audit.Options{Sandbox: "fix", ID: "sb_0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	denied := func(path, rule string, n int) audit.Event {
		return audit.PermissionDenied{Path: audit.Path(path), Operation: "open", Permission: "none", Rule: audit.Text(rule), RuleSource: "preset development", Count: n}
	}
	err = log.Append(denied("/.env", "**/.env*", 1), denied("/x\n", "", 1), denied("/.env", "**/.env*", 3), denied("/.env.local", "**/.env*", 1),
		audit.PermissionDenied{Mount: "tools", Path: "/d/f\n", Operation: "unlink", Permission: "read", Rule: "/**", RuleSource: "--mount", Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := present.Summarise(reviewOf(), func(do func(audit.Record) error) error { return audit.Read(path, do) })
	if err != nil {
		t.Fatal(err)
	}
	want := []present.DenialGroup{
		{Rule: "**/.env*", Source: "preset development", Count: 5, Paths: []string{".env", ".env.local"}},
		{Rule: "/**", Source: "--mount", Count: 2, Paths: []string{`tools:/d/f\x0a`}},
		{Source: "preset development", Count: 1, Paths: []string{`x\x0a`}},
	}
	if diff := cmp.Diff(want, got.Denials); diff != "" {
		t.Errorf("denials (-want +got):\n%s", diff)
	}
	for _, r := range got.Refused {
		if strings.HasPrefix(string(r.Path), "/d") {
			t.Errorf("a flag would be advised for %s in a mount", r.Path)
		}
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

func TestARefusalThatNoRuleExplainsIsNotSaidToBeTheDefault(t *testing.T) {
	sum := present.RefusedTo([]audit.PermissionDenied{{Path: "/list", Operation: "open", Permission: "read"}, {Path: "/x", Operation: "open", Permission: "none"}}, nil)
	want := []present.DenialGroup{
		{Count: 1, Paths: []string{"x"}},
		{Source: "a lock of another sandbox, or a mount at this path", Count: 1, Paths: []string{"list"}},
	}
	if diff := cmp.Diff(want, sum.Denials); diff != "" {
		t.Errorf("denials (-want +got):\n%s", diff)
	}
}

package store

import (
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/id"
)

// What cannot be made again waits for the disk; what is called often, and can,
// does not.
func TestWhatWaitsForTheDisk(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := Codebase{ID: id.NewCodebase()}
	b := Sandbox{ID: id.NewSandbox(), CodebaseID: c.ID}
	const normal, full = 1, 2 // sqlite.org/pragma.html#pragma_synchronous
	for _, step := range []struct {
		name string
		call func() error
		want int
	}{
		{"a new codebase", func() error { return s.AddCodebase(ctx, c, 0) }, full},
		{"what a codebase holds", func() error { return s.SetCodebaseContent(ctx, c.ID, 1, 1, c.UpdatedAt) }, normal},
		{"a new sandbox", func() error { return s.AddSandbox(ctx, b, 0) }, normal},
		{"a new token", func() error { return s.AddToken(ctx, Token{Name: "t", Scopes: AllScopes}) }, full},
		{"a destroyed sandbox", func() error { return s.RemoveSandbox(ctx, b.ID) }, normal},
		{"a revoked token", func() error { return s.RemoveToken(ctx, "t") }, full},
		{"the index", func() error { return s.ReplaceSandboxes(ctx, nil) }, normal},
		{"a deleted codebase", func() error { return s.RemoveCodebase(ctx, c.ID) }, full},
	} {
		if err := step.call(); err != nil {
			t.Fatal(err)
		}
		var got int
		if err := s.writer.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&got); err != nil || got != step.want {
			t.Errorf("%s: synchronous is %d, %v, want %d", step.name, got, err, step.want)
		}
	}
}

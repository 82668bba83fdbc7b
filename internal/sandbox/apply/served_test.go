package apply_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func TestAServersSandboxIsCalledByItsID(t *testing.T) {
	h := openHome(t)
	r := recordOf(t, h, t.TempDir(), "")
	r.Served = &record.Served{
		CodebaseID: "cb_0123456789abcdef", OwnerID: "owner <1>",
		Sent:      []record.SentRule{{Pattern: "**/*"}, {Pattern: "/out", Type: 2, Permission: 4, Priority: -1}},
		Labels:    map[string]string{"b": "2", "a": "1"},
		ExpiresAt: time.Now().UTC().Add(time.Hour),
	}
	made, err := h.Create(r)
	if err != nil {
		t.Fatal(err)
	}
	if made.Name() != string(made.ID()) {
		t.Errorf("name = %s, want %s", made.Name(), made.ID())
	}
	read, err := h.Open(string(made.ID()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made.Record(), read.Record()); diff != "" {
		t.Errorf("record (-made +read):\n%s", diff)
	}
	if all, err := h.List(); len(all) != 1 || err != nil {
		t.Errorf("List = %v, %v, want it", all, err)
	}
	got := read.Record()
	got.Served.Labels["a"] = "other"
	if read.Record().Served.Labels["a"] != "1" {
		t.Error("a record handed out shares its labels")
	}
	if got.IsExpired(got.Served.ExpiresAt.Add(-1)) || !got.IsExpired(got.Served.ExpiresAt) {
		t.Error("it must expire at its moment")
	}
	if err := h.Remove(made.Name()); err != nil {
		t.Error(err)
	}
	if _, err := h.Open(made.Name()); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Open after Remove = %v, want NotFound", err)
	}
}

// schemaVersion is how a record's file says its version.
func schemaVersion(n int) string { return fmt.Sprintf(`"schema_version": %d`, n) }

func TestARecordOfVersion1IsReadAndRenewed(t *testing.T) {
	h := openHome(t)
	path := filepath.Join(create(t, h, "fix").Dir(), "sandbox.json")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(whole), schemaVersion(record.SchemaVersion), schemaVersion(1), 1)
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil || old == string(whole) {
		t.Fatal(err)
	}
	s, err := h.Open("fix")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(r *record.Record) error { r.PolicyNote = "new"; return nil }); err != nil {
		t.Fatal(err)
	}
	if now, err := h.Open("fix"); err != nil || now.Record().SchemaVersion != record.SchemaVersion {
		t.Errorf("version %d, %v, want %d", now.Record().SchemaVersion, err, record.SchemaVersion)
	}
}

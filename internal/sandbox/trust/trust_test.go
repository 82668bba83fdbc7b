package trust_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/trust"
)

func TestTrustIsForOneContent(t *testing.T) {
	h, err := record.OpenHomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const path = "/src/\xff/.agentfense.yaml"
	trusted := func(content string) bool {
		t.Helper()
		ok, err := trust.Has(h, path, []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if trusted("a") {
		t.Error("a file nobody agreed to is trusted")
	}
	for _, content := range []string{"a", "b"} {
		if err := trust.Add(h, path, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if trusted("a") || !trusted("b") {
		t.Error("trust is not for the content agreed to last, alone")
	}
	if ok, err := trust.Has(h, "/elsewhere", []byte("b")); ok || err != nil {
		t.Errorf("the same content elsewhere: %v, %v", ok, err)
	}
	if err := os.WriteFile(filepath.Join(h.Dir(), "trust.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Has(h, path, nil); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("a damaged trust store: %v, want Precondition", err)
	}
}

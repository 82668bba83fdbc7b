package ident_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/ident"
)

func TestIDs(t *testing.T) {
	parsed := func(_ any, err error) error { return err }
	kinds := map[string]struct {
		draw  func() string
		valid func(string) bool
		parse func(string) error
	}{
		"cb_": {
			func() string { return string(ident.NewCodebase()) },
			func(s string) bool { return ident.Codebase(s).IsValid() },
			func(s string) error { return parsed(ident.ParseCodebase(s)) },
		},
		"sb_": {
			func() string { return string(ident.NewSandbox()) },
			func(s string) bool { return ident.Sandbox(s).IsValid() },
			func(s string) error { return parsed(ident.ParseSandbox(s)) },
		},
		"sess_": {
			func() string { return string(ident.NewSession()) },
			func(s string) bool { return ident.Session(s).IsValid() },
			func(s string) error { return parsed(ident.ParseSession(s)) },
		},
	}
	for prefix, k := range kinds {
		id := k.draw()
		if id == k.draw() || !strings.HasPrefix(id, prefix) || len(id) != len(prefix)+16 {
			t.Errorf("drew %q", id)
		}
		if err := k.parse(id); err != nil || !k.valid(id) {
			t.Errorf("%q: %v", id, err)
		}
		digits := strings.TrimPrefix(id, prefix)
		for _, bad := range []string{
			"", digits, prefix, prefix + digits[1:], id + "0", strings.ToUpper(id), prefix + "g" + digits[1:], "x" + id, prefix + "../../../../../.", id[:len(id)-1] + "\x00",
		} {
			if err := k.parse(bad); !fault.Is(err, fault.NotFound) || k.valid(bad) {
				t.Errorf("%q as %s: %v", bad, prefix, err)
			}
		}
	}
}

func TestAnIDThatIsNoneShowsAsText(t *testing.T) {
	err := ident.NoSuch("sandbox", "\x1b[31m"+strings.Repeat("x", 1000))
	if text := err.Error(); len(text) > 200 || strings.Contains(text, "\x1b") {
		t.Errorf("error = %q", text)
	}
}

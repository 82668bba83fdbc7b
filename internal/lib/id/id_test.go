package id_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
)

func TestIDs(t *testing.T) {
	parsed := func(_ any, err error) error { return err }
	kinds := map[string]struct {
		draw  func() string
		valid func(string) bool
		parse func(string) error
	}{
		"cb_": {
			func() string { return string(id.NewCodebase()) },
			func(s string) bool { return id.Codebase(s).IsValid() },
			func(s string) error { return parsed(id.ParseCodebase(s)) },
		},
		"sb_": {
			func() string { return string(id.NewSandbox()) },
			func(s string) bool { return id.Sandbox(s).IsValid() },
			func(s string) error { return parsed(id.ParseSandbox(s)) },
		},
		"sess_": {
			func() string { return string(id.NewSession()) },
			func(s string) bool { return id.Session(s).IsValid() },
			func(s string) error { return parsed(id.ParseSession(s)) },
		},
	}
	for prefix, k := range kinds {
		key := k.draw()
		if key == k.draw() || !strings.HasPrefix(key, prefix) || len(key) != len(prefix)+16 {
			t.Errorf("drew %q", key)
		}
		if err := k.parse(key); err != nil || !k.valid(key) {
			t.Errorf("%q: %v", key, err)
		}
		digits := strings.TrimPrefix(key, prefix)
		for _, bad := range []string{
			"", digits, prefix, prefix + digits[1:], key + "0", strings.ToUpper(key), prefix + "g" + digits[1:], "x" + key, prefix + "../../../../../.", key[:len(key)-1] + "\x00",
		} {
			if err := k.parse(bad); !errdefs.Is(err, errdefs.NotFound) || k.valid(bad) {
				t.Errorf("%q as %s: %v", bad, prefix, err)
			}
		}
	}
}

func TestAnIDThatIsNoneShowsAsText(t *testing.T) {
	err := id.NoSuch("sandbox", "\x1b[31m"+strings.Repeat("x", 1000))
	if text := err.Error(); len(text) > 200 || strings.Contains(text, "\x1b") {
		t.Errorf("error = %q", text)
	}
}

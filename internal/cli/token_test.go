package cli

import (
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestParseExpiry(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                     {},
		"12h":                  now.Add(12 * time.Hour),
		"30d":                  now.AddDate(0, 0, 30),
		"2030-01-31":           time.Date(2030, 1, 31, 0, 0, 0, 0, time.Local).UTC(),
		"2030-01-31T10:00:00Z": time.Date(2030, 1, 31, 10, 0, 0, 0, time.UTC),
	} {
		if got, err := parseExpiry(text, now); err != nil || !got.Equal(want) {
			t.Errorf("parseExpiry(%q) = %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"soon", "0d", "-1h", "d", "3d4", "1.5d", "99999999d", "0", "30"} {
		if got, err := parseExpiry(text, now); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("parseExpiry(%q) = %s, %v, want Invalid", text, got, err)
		}
	}
}

package present

import (
	"testing"
	"time"
)

func TestLocalUntil(t *testing.T) {
	zone := time.Local
	time.Local = time.FixedZone("east", 5*3600+45*60)
	t.Cleanup(func() { time.Local = zone })
	for text, want := range map[string]string{
		"a lock of the sandbox fix until 2026-11-29T20:00:00Z":                  "a lock of the sandbox fix until 2026-11-30 01:45:00",
		`write rule "/a" (policy grant until 2026-11-29T08:00:01Z), priority 3`: `write rule "/a" (policy grant until 2026-11-29 13:45:01), priority 3`,
		"a lock of the sandbox fix":                                             "a lock of the sandbox fix",
		"until 2026-99-29T20:00:00Z":                                            "until 2026-99-29T20:00:00Z",
		"a lock of the sandbox fix until 2026-99-29T20:00:00Z":                  "a lock of the sandbox fix until 2026-99-29T20:00:00Z",
		"a lock of the sandbox fix until 2026-11-29T20:00:00+02:00":             "a lock of the sandbox fix until 2026-11-29T20:00:00+02:00",
	} {
		if got := LocalUntil(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

package cli

import (
	"testing"

	"github.com/agentfense/agentfense/internal/sandbox/config"
)

func TestFormatBytesReadsBack(t *testing.T) {
	for n, want := range map[int64]string{512: "512", 1024: "1K", 512 << 20: "512M", 3 << 29: "1.5G"} {
		got := formatBytes(n)
		if got != want {
			t.Errorf("formatBytes(%d) = %q, want %q", n, got, want)
		}
		if back, err := config.ParseBytes(got); err != nil || back != n {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", got, back, err, n)
		}
	}
}

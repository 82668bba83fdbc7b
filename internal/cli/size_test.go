package cli

import (
	"testing"

	"github.com/agentfense/agentfense/internal/fault"
)

func TestParseBytes(t *testing.T) {
	tests := []struct {
		in   string
		want int64
	}{
		{"1", 1}, {"512M", 512 << 20}, {"1.5G", 3 << 29}, {"2KiB", 2048}, {"1tb", 1 << 40},
	}
	for _, tt := range tests {
		if got, err := parseBytes(tt.in); err != nil || got != tt.want {
			t.Errorf("parseBytes(%q) = %d, %v, want %d", tt.in, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "0", "-1", "M", "1X", "1MM", "NaN", "9999999T", "1 M"} {
		if got, err := parseBytes(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("parseBytes(%q) = %d, %v, want Invalid", bad, got, err)
		}
	}
}

func TestFormatBytesReadsBack(t *testing.T) {
	for n, want := range map[int64]string{512: "512", 1024: "1K", 512 << 20: "512M", 3 << 29: "1.5G"} {
		got := formatBytes(n)
		if got != want {
			t.Errorf("formatBytes(%d) = %q, want %q", n, got, want)
		}
		if back, err := parseBytes(got); err != nil || back != n {
			t.Errorf("parseBytes(%q) = %d, %v, want %d", got, back, err, n)
		}
	}
}

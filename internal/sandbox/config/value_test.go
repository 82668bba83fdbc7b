package config_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/config"
)

func TestParseBytes(t *testing.T) {
	tests := []struct {
		in   string
		want int64
	}{
		{"1", 1}, {"512M", 512 << 20}, {"1.5G", 3 << 29}, {"2KiB", 2048}, {"1tb", 1 << 40},
	}
	for _, tt := range tests {
		if got, err := config.ParseBytes(tt.in); err != nil || got != tt.want {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", tt.in, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "0", "-1", "M", "1X", "1MM", "NaN", "9999999T", "1 M"} {
		if got, err := config.ParseBytes(bad); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("ParseBytes(%q) = %d, %v, want Invalid", bad, got, err)
		}
	}
}

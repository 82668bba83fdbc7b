package cli

import (
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/sandbox/config"
)

// bytesValue is a flag that takes a size: a number and an optional suffix K,
// M, G or T (powers of 1024, also written KiB or KB).
type bytesValue int64

func (v *bytesValue) Type() string { return "size" }

func (v *bytesValue) String() string {
	if *v == 0 {
		return ""
	}
	return formatBytes(int64(*v))
}

func (v *bytesValue) Set(s string) error {
	n, err := config.ParseBytes(s)
	if err != nil {
		return err
	}
	*v = bytesValue(n)
	return nil
}

// formatBytes prints n with the largest suffix that keeps it readable.
func formatBytes(n int64) string {
	const suffixes = "KMGT"
	if n < 1<<10 {
		return strconv.FormatInt(n, 10)
	}
	f, i := float64(n)/(1<<10), 0
	for f >= 1<<10 && i < len(suffixes)-1 {
		f /= 1 << 10
		i++
	}
	text := strconv.FormatFloat(f, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0") + suffixes[i:i+1]
}

package cli

import (
	"math"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/fault"
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
	n, err := parseBytes(s)
	if err != nil {
		return err
	}
	*v = bytesValue(n)
	return nil
}

func parseBytes(s string) (int64, error) {
	digits := strings.TrimRight(s, "BbIiKkMmGgTt")
	unit := strings.ToUpper(s[len(digits):])
	scale, ok := map[string]float64{
		"": 1, "B": 1,
		"K": 1 << 10, "KB": 1 << 10, "KIB": 1 << 10,
		"M": 1 << 20, "MB": 1 << 20, "MIB": 1 << 20,
		"G": 1 << 30, "GB": 1 << 30, "GIB": 1 << 30,
		"T": 1 << 40, "TB": 1 << 40, "TIB": 1 << 40,
	}[unit]
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(n > 0) || n*scale > math.MaxInt64/2 {
		return 0, fault.New(fault.Invalid, "size %q: want a positive number with K, M, G or T, such as 512M", s)
	}
	return int64(n * scale), nil
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

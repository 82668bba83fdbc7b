package codebase

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkUploadSmallFiles uploads files of 2 KiB in directories of a hundred.
// The time of one must not depend on how many there are.
func BenchmarkUploadSmallFiles(b *testing.B) {
	content := strings.Repeat("x", 2<<10)
	for _, files := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			for b.Loop() {
				c := newCodebase(b)
				for i := range files {
					put(b, c, fmt.Sprintf("d%d/e/f%d", i/100, i), content)
				}
				if u := c.Usage(); u.FileCount != int64(files) {
					b.Fatalf("%d files", u.FileCount)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(files*b.N), "us/file")
		})
	}
}

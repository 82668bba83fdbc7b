package apply

import "testing"

// SetMergeBytes sets the bound of the merged texts for a test.
func SetMergeBytes(t *testing.T, n int) {
	was := mergeBytes
	mergeBytes = n
	t.Cleanup(func() { mergeBytes = was })
}

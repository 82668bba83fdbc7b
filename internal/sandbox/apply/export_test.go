package apply

import "testing"

// SetMergeBytes sets the bound of the merged texts for a test.
func SetMergeBytes(t *testing.T, n int) {
	was := mergeBytes
	mergeBytes = n
	t.Cleanup(func() { mergeBytes = was })
}

// SetBatchFiles sets how many files are staged together for a test.
func SetBatchFiles(t *testing.T, n int) {
	was := batchFiles
	batchFiles = n
	t.Cleanup(func() { batchFiles = was })
}

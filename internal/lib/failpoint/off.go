//go:build !crashpoints

package failpoint

// At does nothing.
func At(string) {}

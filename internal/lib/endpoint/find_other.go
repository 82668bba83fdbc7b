//go:build !linux

package endpoint

// FindDefault finds no server: a server needs Linux.
func FindDefault(string) (s LocalServer, serves bool) { return LocalServer{}, false }

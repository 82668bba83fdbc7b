// Package statedir finds a user's state directory.
package statedir

import (
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Path returns the path of the user's state directory, which need not exist: $AGENTFENSE_HOME, else
// $XDG_DATA_HOME/agentfense, else $HOME/.local/share/agentfense. Errors: Precondition if none of
// the three is set.
func Path(getenv func(string) string) (string, error) {
	if dir := getenv("AGENTFENSE_HOME"); dir != "" {
		return dir, nil
	}
	// The XDG base directory specification requires to ignore a relative path.
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "agentfense"), nil
	}
	if dir := getenv("HOME"); dir != "" {
		return filepath.Join(dir, ".local", "share", "agentfense"), nil
	}
	return "", errdefs.New(errdefs.Precondition, "state directory: none of AGENTFENSE_HOME, XDG_DATA_HOME and HOME is set")
}

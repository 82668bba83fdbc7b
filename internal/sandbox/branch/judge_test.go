package branch

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/sandbox/transplant"
)

// A path that git cannot open would be in the work tree and in the index, and no undo could take it
// back. No policy lets a commit have it.
func TestACommitHasNoNameThatGitCannotCheckOut(t *testing.T) {
	for _, name := range []string{strings.Repeat("d/", 2048) + "f", "a/.GIT/hooks/post-commit", "a/../b", "/a", ""} {
		if v, why := Judge(nil)(name); v != transplant.Refuse || why == "" {
			t.Errorf("%.20q: %v, %q", name, v, why)
		}
	}
}

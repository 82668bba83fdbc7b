package cli

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestVariablesNeedAName(t *testing.T) {
	for _, bad := range []string{"", "=x"} {
		if err := checkVariables([]string{bad}); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("--env %q: error = %v, want Invalid", bad, err)
		}
	}
}

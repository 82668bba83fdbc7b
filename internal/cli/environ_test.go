package cli

import (
	"testing"

	"github.com/agentfense/agentfense/internal/fault"
)

func TestVariablesNeedAName(t *testing.T) {
	for _, bad := range []string{"", "=x"} {
		if err := checkVariables([]string{bad}); !fault.Is(err, fault.Invalid) {
			t.Errorf("--env %q: error = %v, want Invalid", bad, err)
		}
	}
}

package wireconv

import (
	"slices"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Each value of an enum of the API has a meaning, and is its meaning's value.
func TestEveryEnumValueSurvives(t *testing.T) {
	allSurvive(t, Permission)
	allSurvive(t, PatternType)
	allSurvive(t, RuleOrigin)
	allSurvive(t, Status)
	allSurvive(t, Runtime)
	allSurvive(t, Sync)
	allSurvive(t, ChangeStatus)
	allSurvive(t, Risk)
	allSurvive(t, Outcome)
	allSurvive(t, ConflictKind)
	allSurvive(t, Resolution)
	allSurvive(t, TransactionKind)
	allSurvive(t, ExportFormat)
	allSurvive(t, TransactionState)
	allSurvive(t, ViewOrigin)
	allSurvive(t, ChangeKind)
	allSurvive(t, Stream)
	allSurvive(t, AskScope)
	allSurvive(t, SnapshotReason)
}

// allSurvive checks an enum. The values of others have no meaning in it.
func allSurvive[D comparable, W wireEnum](t *testing.T, e Enum[D, W], others ...W) {
	t.Helper()
	var zero W
	values := zero.Descriptor().Values()
	for i := range values.Len() {
		w, is := zero.Type().New(values.Get(i).Number()).(W)
		if !is {
			t.Fatalf("%s: not of the type %T", values.Get(i).FullName(), zero)
		}
		_, known := e.domain[w]
		switch {
		case w == zero:
		case slices.Contains(others, w):
			if known {
				t.Errorf("%s has a meaning", values.Get(i).FullName())
			}
		case !known:
			t.Errorf("%s has no meaning", values.Get(i).FullName())
		case e.Encode(e.Decode(w)) != w:
			t.Errorf("%s becomes %v", values.Get(i).FullName(), e.Encode(e.Decode(w)))
		}
	}
	newer, _ := zero.Type().New(9999).(W)
	if _, err := e.Parse("field", newer); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("%s: 9999: error %v, want Invalid", zero.Descriptor().FullName(), err)
	}
}

func TestAnUnknownValueIsNamed(t *testing.T) {
	_, err := Runtime.Parse("runtime", 7)
	if want := "runtime: unknown value 7 (want RUNTIME_TYPE_BWRAP or RUNTIME_TYPE_DOCKER)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

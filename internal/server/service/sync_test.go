package service

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestSyncWaitsForWhatIsWritten(t *testing.T) {
	broken := errors.New("broken")
	paths := func(p ...vpath.Path) []vpath.Path { return p }
	busy := func(p ...vpath.Path) synced { return synced{overwrote: p, left: paths("/w"), busy: true} }
	for _, tt := range []struct {
		name  string
		tries []synced // the last again and again
		err   error    // of the last
		want  []vpath.Path
		calls int
	}{
		{"at rest", []synced{{overwrote: paths("/o"), left: paths("/l")}}, nil, paths("/l", "/o"), 1},
		{"at rest the second time", []synced{busy("/o"), {}}, nil, paths("/o"), 2},
		{"at rest the last time", []synced{busy(), busy("/o"), busy(), busy(), {left: paths("/l")}}, nil, paths("/l", "/o"), 5},
		{"never at rest", []synced{busy("/w"), busy()}, nil, paths("/w"), 5},
		{"broken at last", []synced{busy("/o"), busy()}, broken, paths("/o", "/w"), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			got, err := untilAtRest(func() (synced, error) {
				calls++
				if calls < len(tt.tries) {
					return tt.tries[calls-1], nil
				}
				return tt.tries[len(tt.tries)-1], tt.err
			})
			if diff := cmp.Diff(tt.want, got); diff != "" || calls != tt.calls || !errors.Is(err, tt.err) {
				t.Errorf("%d tries, %v; paths (-want +got):\n%s", calls, err, diff)
			}
		})
	}
}

package supervise

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// record is a command that notes what it hears.
type rec []string

func (r *rec) signal(sig unix.Signal) { *r = append(*r, fmt.Sprint("signal ", int(sig))) }
func (r *rec) abandon()               { *r = append(*r, "abandon") }

func TestCallerIsHeardBeforeTheCommandRuns(t *testing.T) {
	tests := []struct {
		name  string
		stays bool
		early []string // before the command runs
		late  []string
		want  []string
	}{
		{"a signal waits for the command", false, []string{"int"}, nil, []string{"signal 2"}},
		{"the same signal waits once", false, []string{"int", "int", "term"}, nil, []string{"signal 2", "signal 15"}},
		{"what is no signal does not wait", false, []string{"none"}, nil, nil},
		{"one who leaves ends the start", false, []string{"int", "leave"}, nil, []string{"give up", "signal 2", "abandon"}},
		{"one who leaves later ends the command", false, nil, []string{"int", "leave"}, []string{"signal 2", "abandon"}},
		{"one whose command is detached may leave early", true, []string{"leave"}, nil, []string{"abandon"}},
		{"one whose command is detached may leave late", true, nil, []string{"leave"}, []string{"abandon"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got rec
			k := &clientConn{stays: tt.stays, giveUp: func() { got = append(got, "give up") }}
			do := map[string]func(){
				"int": func() { k.signal(unix.SIGINT) }, "term": func() { k.signal(unix.SIGTERM) },
				"none": func() { k.signal(0); k.signal(65) }, "leave": k.leave,
			}
			for _, what := range tt.early {
				do[what]()
			}
			k.connect(&got)
			for _, what := range tt.late {
				do[what]()
			}
			if diff := cmp.Diff(rec(tt.want), got); diff != "" {
				t.Errorf("heard (-want +got):\n%s", diff)
			}
		})
	}
}

package dial

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Who takes the port is sent nothing, not even the head of a connection.
func TestConnectionIsMadeOnlyWhileTheSameOneListens(t *testing.T) {
	doubt := errors.New("somebody else listens there")
	for _, tt := range []struct {
		name    string
		answers []string // "" for the doubt
		wantErr func(error) bool
		dialled bool
	}{
		{"the same", []string{"a", "a"}, func(err error) bool { return err == nil }, true},
		{"a doubt before", []string{""}, func(err error) bool { return errors.Is(err, doubt) }, false},
		{"a doubt after", []string{"a", ""}, func(err error) bool { return errors.Is(err, doubt) }, true},
		{"another after", []string{"a", "b"}, func(err error) bool { return errdefs.Is(err, errdefs.Unavailable) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int32
			dial := dialGuarded(func() (string, error) {
				if who := tt.answers[asked.Add(1)-1]; who != "" {
					return who, nil
				}
				return "", doubt
			})
			conn, err := dial(t.Context(), l.Addr().String())
			if !tt.wantErr(err) || (conn != nil) != (err == nil) || int(asked.Load()) != len(tt.answers) {
				t.Errorf("%v, %v, asked %d times", conn, err, asked.Load())
			}
			if conn != nil {
				conn.Close()
			}
			if tt.dialled {
				far, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer far.Close()
				if sent, err := io.ReadAll(far); len(sent) > 0 || err != nil {
					t.Errorf("sent is %q, %v", sent, err)
				}
			}
			l.Close()
		})
	}
}

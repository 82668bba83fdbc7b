package api

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

// DropLive says that the sandbox has stopped if its supervisor ends before or during a drop.
func TestADropWhileTheSupervisorEnds(t *testing.T) {
	for name, last := range map[string]operation{"before the request": OpStatus, "before the answer": OpDrop} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, ControlSocket)})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for is := operation(""); is != last; {
					uc, err := l.AcceptUnix()
					if err != nil {
						return
					}
					c := Conn{uc}
					var r Request
					_, _ = c.Receive(&r) // a probe sends nothing
					if is = r.Op; is == last {
						l.Close()
					}
					if is == OpStatus {
						_ = c.Send(Reply{Status: &Status{}})
					}
					c.Close()
				}
			}()
			drop, err := DropLive(t.Context(), dir, "")
			if err != nil || drop == nil {
				t.Fatal(err)
			}
			if last == OpStatus {
				<-ended
			}
			if _, err := drop(nil); !errors.Is(err, changes.ErrStopped) || !errdefs.Is(err, errdefs.Precondition) {
				t.Errorf("drop = %v, want ErrStopped", err)
			}
			<-ended
		})
	}
}

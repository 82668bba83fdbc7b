package supervise

import (
	"os"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// newSandbox makes a sandbox in a state directory of its own.
func newSandbox(t *testing.T) *record.Sandbox {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	home, err := record.OpenHomeAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	source, err := home.ResolveSource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sb, err := home.Create(record.Record{
		Name: "fix", Source: source, Workspace: "/workspace", Runtime: record.RuntimeBwrap, Net: record.NetNone,
	})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestEndWaitsForASupervisorThatIsLettingGo(t *testing.T) {
	sb := newSandbox(t)
	lock, err := sb.TryLock(record.PurposeSupervise)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := End(t.Context(), sb, time.Minute)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("it did not wait: %v", err)
	case <-time.After(3 * settleInterval):
	}
	lock.Release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

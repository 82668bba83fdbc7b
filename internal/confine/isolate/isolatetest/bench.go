package isolatetest

import (
	"context"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// Benchmark measures what a user waits for: a whole sandbox from its start to its end, and
// one command in a running sandbox. The test binary is PID 1 and leader; the real binary
// may start slightly faster or slower.
func Benchmark(b *testing.B, factory Factory) {
	testenv.Root(b)
	b.Run("start", func(b *testing.B) {
		spec := specOver(b, b.TempDir())
		for b.Loop() {
			box := start(b, factory, spec)
			box.proc.Kill()
			box.proc.Wait()
		}
	})
	b.Run("exec", func(b *testing.B) {
		box := start(b, factory, specOver(b, b.TempDir()))
		for b.Loop() {
			x, err := box.conn.Exec(context.Background(), guest.Command{Argv: []string{"/usr/bin/true"}, TTY: -1}, nil)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := x.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

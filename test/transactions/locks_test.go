package transactions_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/test/harness"
)

// lock is a mandatory lock of another sandbox.
type lock struct {
	path   string
	holder *delta
}

// covers reports whether the lock takes the right to write p: the holder has it, and keeps it.
func (l *lock) covers(p string) bool {
	return l != nil && (p == l.path || isBelow(p, l.path)) && l.holder.permission(p) == policy.Write
}

// a dialogue is a program that runs in a sandbox and does operations one after the other.
type dialogue struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// talk starts a sandbox with the program.
func (w *world) talk(b *box) (*dialogue, error) {
	d := &dialogue{cmd: w.program(b)}
	d.cmd.Stderr = &d.stderr
	in, err := d.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.in, d.out = in, bufio.NewReader(out)
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := d.ask(operation{Do: "nothing"}); err != nil {
		return nil, err
	}
	return d, nil
}

// ask does an operation.
func (d *dialogue) ask(o operation) (syscall.Errno, error) {
	if err := json.NewEncoder(d.in).Encode(o); err != nil {
		return 0, err
	}
	line, err := d.out.ReadString('\n')
	if err != nil {
		d.in.Close()
		return 0, fmt.Errorf("%v: %w, %w\n%s", o, err, d.cmd.Wait(), &d.stderr)
	}
	list, err := parseErrnos([]byte(line))
	if err != nil {
		return 0, err
	}
	return list[0], nil
}

// end lets the program end, if it has not been ended.
func (d *dialogue) end() {
	d.in.Close()
	_, _ = io.Copy(io.Discard, d.out)
	_ = d.cmd.Wait()
}

// lockPatience bounds how long a lock may last after its holder was killed.
const lockPatience = 30 * time.Second

// lockAndEdit locks a path by one sandbox, edits in another one, ends the lock, and edits again.
func (w *world) lockAndEdit(rt *rapid.T) {
	if len(w.boxes) < 2 || rapid.IntRange(0, 3).Draw(rt, "lock") > 0 {
		return
	}
	holder, _ := w.anyBox(rt)
	other, _ := w.anyBox(rt)
	p := w.drawName(rt, "locked")
	if holder == other {
		return
	}
	held, err := w.talk(holder)
	w.must(rt, err)
	defer held.end()
	talk, err := w.talk(other)
	w.must(rt, err)
	defer talk.end()
	out, err := w.agentfense("lock", holder.name, "/"+p).CombinedOutput()
	if holder.permission(p) < policy.Write {
		if err == nil || !strings.Contains(string(out), "may not write it") {
			rt.Fatalf("%s has locked %q, which it may not write: %s", holder.name, p, out)
		}
		return
	}
	if err != nil {
		rt.Fatalf("agentfense lock %s %q: %v\n%s", holder.name, p, err, out)
	}
	other.lock = &lock{p, holder.delta}
	w.converse(rt, other, talk, p, 0)
	w.converse(rt, holder, held, p, 0)
	other.lock = nil
	w.converse(rt, other, talk, p, w.endLock(rt, holder, p))
}

// converse does edits by a program that runs in a sandbox, some of them at p and below. An
// operation may be refused for a time: a lock ends some time after its holder was killed.
func (w *world) converse(rt *rapid.T, b *box, d *dialogue, p string, patience time.Duration) {
	deadline := time.Now().Add(patience)
	for range rapid.IntRange(1, 4).Draw(rt, "edits") {
		at := p
		if rapid.Bool().Draw(rt, "elsewhere") {
			at = w.drawName(rt, "path")
		}
		e, ok := w.drawEditAt(rt, b.view(w.src), at)
		if !ok {
			continue
		}
		for _, o := range w.expect(b, e) {
			got, err := d.ask(o.operation)
			for err == nil && got != o.errno && time.Now().Before(deadline) {
				time.Sleep(20 * time.Millisecond)
				got, err = d.ask(o.operation)
			}
			w.must(rt, err)
			if got != o.errno {
				rt.Fatalf("in %s with %v and %v: %v: %v, want %v", b.name, b.narrow, b.lock, o.operation, got, o.errno)
			}
			if b.lock.covers(e.path) && o.errno != 0 {
				w.did["lock: refused"]++
			}
		}
	}
}

// endLock ends the lock of a sandbox. It returns how long it may take.
func (w *world) endLock(rt *rapid.T, holder *box, p string) time.Duration {
	how := rapid.SampledFrom([]string{"unlock", "stop", "kill", "remove"}).Draw(rt, "end of the lock")
	w.did["lock: "+how]++
	args := map[string][]string{
		"unlock": {"unlock", holder.name, "/" + p},
		"stop":   {"stop", holder.name},
		"remove": {"rm", "--force", holder.name},
	}
	if how == "kill" {
		w.must(rt, w.killSupervisor(holder))
		return lockPatience
	}
	if out, err := w.agentfense(args[how]...).CombinedOutput(); err != nil {
		rt.Fatalf("agentfense %q: %v\n%s", args[how], err, out)
	}
	if how == "remove" {
		delete(w.boxes, holder.name)
		delete(w.data.boxes, holder.name)
	}
	return 0
}

// killSupervisor kills the supervisor of a sandbox.
func (w *world) killSupervisor(b *box) error {
	all := harness.Processes(w.home.Dir())
	i := slices.IndexFunc(all, func(p harness.Process) bool { return p.Role == harness.Supervisor && p.Sandbox == b.name })
	if i < 0 {
		return fmt.Errorf("%s has no supervisor", b.name)
	}
	return unix.Kill(all[i].PID, unix.SIGKILL)
}

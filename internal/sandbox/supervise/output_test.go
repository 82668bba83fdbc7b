package supervise

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// refilled stands for a background process that writes whenever there is room:
// for what is taken from the pipe the same amount comes into it.
type refilled struct {
	pipe *os.File
	kept bytes.Buffer
}

func (r *refilled) Write(b []byte) (int, error) {
	r.kept.Write(b)
	return r.pipe.Write(b)
}

func TestFinishDoesNotWaitForThoseWhoNeverEnd(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	defer to.Close()
	last := "the last words\n"
	text := append(bytes.Repeat([]byte("x"), 48<<10), last...)
	if _, err := to.Write(text); err != nil {
		t.Fatal(err)
	}
	endless := &refilled{pipe: to}
	output := api.CopyOutput(endless, from)
	finished := make(chan struct{})
	go func() {
		output.Finish()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(30 * time.Second):
		t.Fatal("it still copies what was written after the end")
	}
	if !bytes.HasPrefix(endless.kept.Bytes(), text) {
		t.Errorf("of %d bytes written before the end %d came", len(text), endless.kept.Len())
	}
}

// A command may close its terminal, open it again, write and end, all before
// the copying has looked again.
func TestTheLastWordsToAReopenedTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := setUpTerminal(master, 24, 80)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := pollable(master)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	write := func(text string) {
		slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer slave.Close()
		if _, err := slave.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("first ")
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	output := api.CopyOutput(to, terminal)
	if _, err := io.ReadFull(from, make([]byte, len("first "))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(api.DrainPause / 2) // it has seen that none has the terminal open
	write("last")
	output.Finish()
	to.Close()
	if got, err := io.ReadAll(from); string(got) != "last" || err != nil {
		t.Errorf("%q came, %v, want the last words", got, err)
	}
}

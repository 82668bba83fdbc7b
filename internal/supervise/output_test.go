package supervise

import (
	"bytes"
	"os"
	"testing"
	"time"
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
	output := CopyOutput(endless, from)
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

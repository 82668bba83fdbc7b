package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

func TestProgressTakesOneLineAndLeavesNone(t *testing.T) {
	var out bytes.Buffer
	since := time.Now()
	ticks := make(chan time.Time)
	p := startProgress(&out, "applying", since, ticks)
	ticks <- since.Add(progressAfter - time.Millisecond)
	ticks <- since.Add(progressAfter)
	ticks <- since.Add(3 * time.Second) // taken when the line above is drawn
	p.stop()
	p.stop()
	const last = "agentfense: applying, 3 s"
	want := "\ragentfense: applying, 1 s\r" + last + "\r" + strings.Repeat(" ", len(last)) + "\r"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestProgressCounts(t *testing.T) {
	p := &progress{doing: "applying"}
	p.count(9, 12)
	if got, want := p.text(12*time.Second), "agentfense: applying, 12 s, 9 of 12"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgressOfWhatIsQuickShowsNothing(t *testing.T) {
	var out bytes.Buffer
	p := startProgress(&out, "applying", time.Now(), make(chan time.Time))
	p.stop()
	var none *progress
	none.count(1, 2)
	none.stop()
	if out.Len() > 0 {
		t.Errorf("got %q, want nothing", out.String())
	}
}

func TestProgressIsForTerminals(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if p := (&env{stderr: file}).progress("applying"); p != nil {
		t.Error("it is shown in a file")
	}
	screen, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	defer terminal.Close()
	e := &env{stderr: terminal}
	if p := e.progressUnless(true, "applying"); p != nil {
		t.Error("it is shown beside --json")
	}
	p := e.progressUnless(false, "applying")
	if p == nil {
		t.Fatal("it is not shown on a terminal")
	}
	p.stop()
}

package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantiles(t *testing.T) {
	var d durations
	for i := 100; i > 0; i-- {
		d = append(d, time.Duration(i))
	}
	got := []float64{d.at(0), d.at(.5), d.at(.95), d.at(1), durations(nil).at(.5)}
	if diff := cmp.Diff([]float64{1, 51, 96, 100, 0}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsMoreIsPaired(t *testing.T) {
	got := durations{30, 50, 20}.less(durations{10, 40, 19})
	if diff := cmp.Diff(durations{20, 10, 1}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAFigureIsJudgedByItsBound(t *testing.T) {
	tests := []struct {
		name             string
		f                figure
		asked, met, text string
	}{
		{"nothing is asked", figure{Unit: times, Value: 3}, "", "", "3.00×"},
		{"the bound itself", figure{Unit: nanoseconds, Value: 10e6, Most: 10e6}, "≤ 10.00 ms", "yes", "10.00 ms"},
		{"a hair more", figure{Unit: nanoseconds, Value: 10e6 + 1, Most: 10e6}, "≤ 10.00 ms", "NO", "10.00 ms"},
		{"exactly none", figure{Exact: true}, "0", "yes", "0"},
		{"not exactly none", figure{Value: 1, Exact: true}, "0", "NO", "1"},
		{"less than exactly so much", figure{Value: 1, Most: 2, Exact: true}, "2", "NO", "1"},
		{"memory", figure{Unit: memoryBytes, Value: 3 << 19, Most: 1 << 20}, "≤ 1.0 MiB", "NO", "1.5 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := []string{tt.f.asked(), tt.f.met(), tt.f.Unit.format(tt.f.Value)}
			if diff := cmp.Diff([]string{tt.asked, tt.met, tt.text}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadEvents(t *testing.T) {
	tests := []struct {
		name, events string
		bytes        int
		wrong        string
	}{
		{"text, bytes and the end", "event: stdout\ndata: {\"text\":\"abc\"}\n\n: still there\n\nevent: stderr\ndata: {\"base64\":\"/w==\"}\n\nevent: exit\ndata: {\"exitCode\":0}\n\n", 4, ""},
		{"a command that fails", "event: exit\ndata: {\"exitCode\":3}\n\n", 0, "exit code 3"},
		{"an error", "event: error\ndata: {\"message\":\"timed out\"}\n\n", 0, "timed out"},
		{"no end", "event: stdout\ndata: {\"text\":\"abc\"}\n\n", 3, "without an exit"},
		{"no JSON", "event: stdout\ndata: abc\n\n", 0, "event stdout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			err := readEvents(strings.NewReader(tt.events), func(more int) { n += more })
			if n != tt.bytes || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("got %d bytes, %v", n, err)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	said := bufio.NewReader(strings.NewReader("grpc 127.0.0.1:1\nnonsense\n"))
	if got, err := address(said, "grpc"); got != "127.0.0.1:1" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := address(said, "http"); err == nil {
		t.Errorf("got %q", got)
	}
}

func TestMakeFiles(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("/bin/sh", "-ec", makeFiles("x", 250)+"; find x -type f | wc -l; cat x/2/249")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || !cmp.Equal(got, []string{"250", "249"}) {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestFlags(t *testing.T) {
	for _, wrong := range [][]string{{"--rounds", "0"}, {"--run", "("}, {"more"}, {"--for", "-1s"}} {
		if _, err := Parse("serve", wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
	for part, rows := range map[string]string{"serve": "the rows are life exec", "python": "the rows are import run"} {
		o, err := Parse(part, []string{"--run", "nonsense"})
		if err != nil {
			t.Fatal(err)
		}
		err = Run(context.Background(), o, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), rows) {
			t.Errorf("%s: got %v", part, err)
		}
	}
}

func TestARowThatCannotBeMeasuredHasANote(t *testing.T) {
	r := newResult(Options{Rounds: 1})
	r.add(row{ID: "a"}, nil, errNotHere("docker: no"))
	r.add(row{ID: "b"}, []figure{{Name: "errors", Value: 1, Exact: true}}, errors.New("broken"))
	var out bytes.Buffer
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"note: a: not measured: docker: no\n", "note: b: failed: broken\n", "0 met, 1 missed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

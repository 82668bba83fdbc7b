package docs_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// recording is the picture of the session at the top of README.md.
const recording = "docs/session.svg"

var update = flag.Bool("update", false, "record "+recording+" anew (scripts/record)")

// project is the directory in which the recorded commands are typed.
var project = map[string]string{
	".env":      "TOKEN=hunter2\n",
	"shop.conf": "greeting = \"hi\"\n",
	"agent.sh": `cat .env
sed -i s/hi/hello/ shop.conf
echo 'curl https://example.org' > .git/hooks/pre-commit
chmod +x .git/hooks/pre-commit
`,
}

// recorded are the commands of the session.
var recorded = []string{
	"cat .env",
	"agentfense run --preset development --name fix -- sh -x agent.sh",
	"cat shop.conf",
	"agentfense diff fix shop.conf",
	"agentfense apply fix shop.conf",
	"agentfense discard --yes fix",
	"cat shop.conf",
}

// TestRecording types the commands of the session at a terminal. The picture must
// show what the terminal shows; -update draws it anew.
func TestRecording(t *testing.T) {
	testenv.Command(t, "git")
	w := newWorld(t, recording)
	for name, content := range project {
		if err := os.WriteFile(filepath.Join(w.work, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := w.command("git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	shown := normalize(w.record(recorded))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, ours := range []string{w.work, w.home, w.state, host} {
		if strings.Contains(shown, ours) {
			t.Errorf("the session shows %q, which is of this machine:\n%s", ours, shown)
		}
	}
	steps, err := interpret(shown)
	if err != nil {
		t.Fatal(err)
	}
	drawn := draw(steps)
	path := filepath.Join(root, recording)
	if *update {
		if err := os.WriteFile(path, drawn, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	picture, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(textOf(t, drawn), textOf(t, picture)); diff != "" {
		t.Errorf("%s is out of date: run scripts/record (-terminal +picture):\n%s", recording, diff)
	}
}

func TestReadmeShowsTheRecording(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "]("+recording+")") {
		t.Errorf("README.md does not show %s", recording)
	}
}

// record types commands into a shell on a terminal, each when the one before has
// ended, and returns all that the terminal showed.
func (w *world) record(commands []string) string {
	w.t.Helper()
	cmd := w.command("sh", "-c", "umask 022; exec sh -i")
	cmd.Env = append(slices.DeleteFunc(slices.Clone(w.env), func(variable string) bool {
		return strings.HasPrefix(variable, "NO_COLOR=") || strings.HasPrefix(variable, "ENV=")
	}), "TERM=xterm", "LC_ALL=C", "PS1="+mark+"$ ")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: columns})
	if err != nil {
		w.t.Fatal(err)
	}
	var shown bytes.Buffer
	for i, command := range append(commands, "exit") {
		for strings.Count(shown.String(), mark+"$ ") <= i {
			if _, err := io.CopyN(&shown, tty, 1); err != nil {
				w.t.Fatalf("%v before %q was typed; the terminal shows:\n%s", err, command, shown.String())
			}
		}
		if _, err := tty.WriteString(command + "\n"); err != nil {
			w.t.Fatal(err)
		}
	}
	err = errors.Join(cmd.Wait(), tty.Close())
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return strings.TrimSuffix(shown.String(), mark+"$ ")
}

// normalize replaces what differs from run to run.
func normalize(shown string) string {
	return regexp.MustCompile(`\b[0-9a-f]{64}\b`).ReplaceAllString(shown, "…")
}

// textOf returns the lines of text in a picture.
func textOf(t *testing.T, picture []byte) []string {
	t.Helper()
	var lines []string
	inside := false
	for decoder := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "text" {
				inside = true
				lines = append(lines, "")
			}
		case xml.EndElement:
			inside = inside && token.Name.Local != "text"
		case xml.CharData:
			if inside {
				lines[len(lines)-1] += string(token)
			}
		}
	}
}

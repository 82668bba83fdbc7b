package reviewui

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// viewOf shows the texts of a fake.
type viewOf struct {
	backend.View
	*fake
}

func (v viewOf) Close() {}

func (v viewOf) Copy(_ context.Context, w io.Writer, path vpath.Path) error {
	_, err := io.WriteString(w, v.texts[path])
	return err
}

func (f *fake) View(context.Context, string, string, []string) (backend.View, error) {
	return viewOf{fake: f}, nil
}

// editor makes a program that writes its arguments to the file log, and then runs a script.
func editor(t *testing.T, name, script string) (program, log string) {
	t.Helper()
	dir := t.TempDir()
	program, log = filepath.Join(dir, name), filepath.Join(dir, "log")
	text := "#!/bin/sh\nfor a; do echo \"${a##*/}\"; done >'" + log + "'\n" + script + "\n"
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return program, log
}

// opens presses e on a.txt, which has changed from old to new, and returns what the tool was given
// and what the screen says then.
func opens(t *testing.T, log string, environ map[string]string) (args []string, status string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	f := &fake{texts: map[vpath.Path]string{}, old: map[vpath.Path]string{}}
	f.add("/a.txt", "new\n", nil)
	p := sit(t, f, 100, 10)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p.m.source.o.In, p.m.source.o.Out = null, null
	p.press("G")
	p.m.o.Getenv = func(name string) string { return environ[name] }
	cmd := p.m.edit()
	if cmd == nil {
		return nil, p.m.status
	}
	start := cmd().(written)
	if start.err != nil {
		t.Fatal(start.err)
	}
	p.tell(edited{start.tool, start.cmd.Run()})
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("the copies are still there: %v, %v", left, err)
	}
	text, _ := os.ReadFile(log)
	return strings.Fields(string(text)), p.m.status
}

func TestWhichProgramOpensAFile(t *testing.T) {
	plain, log := editor(t, "plain", "")
	for _, tt := range []struct {
		name    string
		environ map[string]string
		want    []string
		status  string
	}{
		{"EDITOR", map[string]string{"EDITOR": plain}, []string{"new.txt"}, ""},
		{"VISUAL goes before EDITOR", map[string]string{"EDITOR": "/nothere", "VISUAL": plain + " -x"}, []string{"-x", "new.txt"}, ""},
		{"DIFFTOOL gets both sides", map[string]string{"EDITOR": "/nothere", "VISUAL": "/nothere", "DIFFTOOL": plain}, []string{"old.txt", "new.txt"}, ""},
		{"a value with quotes is run by a shell", map[string]string{"VISUAL": "'" + plain + "' ''a\"b\""}, []string{"ab", "new.txt"}, ""},
		{"blanks are no program", map[string]string{"VISUAL": "  ", "EDITOR": plain}, []string{"new.txt"}, ""},
		{"none", nil, nil, "set VISUAL, EDITOR or DIFFTOOL to a program"},
		{"one that does not exist", map[string]string{"EDITOR": "agentfense-no-editor -x"}, nil, "agentfense-no-editor -x: executable file not found in $PATH"},
		{"a path that does not exist", map[string]string{"EDITOR": "/nothere"}, nil, "/nothere: no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(log, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			args, status := opens(t, log, tt.environ)
			if diff := cmp.Diff(tt.want, args); diff != "" && len(tt.want)+len(args) > 0 {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if status != tt.status {
				t.Errorf("got the status %q, want %q", status, tt.status)
			}
		})
	}
}

func TestWhatTheEditorLeaves(t *testing.T) {
	for _, tt := range []struct{ script, want string }{
		{"exit 0", ""},
		{"exit 3", "TOOL: exit status 3"},
		{`cp -p "$1" x; chmod u+w x; echo more >>x; mv -f x "$1"`, "what you wrote is not kept: the editor had a copy"},
		{`rm -f "$1"`, "what you wrote is not kept: the editor had a copy"},
	} {
		program, log := editor(t, "tool", tt.script)
		_, status := opens(t, log, map[string]string{"EDITOR": program})
		if got := strings.ReplaceAll(status, program, "TOOL"); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.script, got, tt.want)
		}
	}
}

func TestVimIsKnownByTheFileThatANameLeadsTo(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, name := range []string{"vim.basic", "emacs-gtk", "emacsclient.emacs", "busybox"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"vi": "vim.basic", "editor": "emacs-gtk", "ec": "emacsclient.emacs", "bvi": "busybox"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"vi": "--cmd", "editor": "--eval", "ec": "", "bvi": "", "nvim": "--cmd", "/usr/bin/vim": "--cmd", "'vi'": "--cmd", "not-there": "",
	} {
		s := newSource(t.Context(), Options{Backend: newFake(), Changes: changesOf{fake: newFake()}})
		cmd, err := s.program("/a.txt", name, false)
		t.Cleanup(s.close)
		if err != nil {
			t.Fatal(err)
		}
		if got := flagOf(cmd); got != want {
			t.Errorf("%s: got the arguments %q, want %q", name, cmd.Args, want)
		}
	}
}

// flagOf is the flag that switches modelines off, "" for none.
func flagOf(cmd *exec.Cmd) string {
	for _, a := range cmd.Args {
		if a == "--cmd" || a == "--eval" {
			return a
		}
	}
	return ""
}

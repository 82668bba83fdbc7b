package service_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

func TestALinkedDirectoryLeavesOutWhatAnUploadWould(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"f": "seen", ".env": "SECRET", ".git/config": "x", ".gitignore": "*.log\n", ".sandboxignore": "!kept.log\nbuild/\n",
		"a.log": "host's", "kept.log": "kept", "build/o": "host's", "gone/b.log": "host's", "gone/c": "c",
	} {
		write(name, content)
	}
	made, err := w.codebases.LinkCodebase(ctx, &sandboxv1.LinkCodebaseRequest{Name: "host", OwnerId: "me", Path: dir, IgnoreFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	sb := w.sandbox(ctx, made.Id)
	run := func(command string) string {
		t.Helper()
		r, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: command})
		if err != nil || r.Stderr != "" {
			t.Errorf("%s: %v, %v", command, r, err)
		}
		return r.GetStdout()
	}
	if got := run("find . -mindepth 1 | sort | tr '\\n' ' '; for x in .env a.log build/o .git; do test ! -e $x || echo $x; done"); got != "./.gitignore ./.sandboxignore ./f ./gone ./gone/c ./kept.log " {
		t.Errorf("inside there is %q", got)
	}
	write(".gitignore", "f\n") // a sandbox's are those of when it was made
	run("cat f; rm -r gone; mkdir build; echo mine > build/new; echo mine > x.log")
	if got := run("ls build"); got != "new\n" {
		t.Errorf("its own directory shows %q", got)
	}
	if _, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb}); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"build/new": "mine\n", "build/o": "host's", "x.log": "mine\n", "gone/b.log": "host's", ".env": "SECRET"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want || err != nil {
			t.Errorf("after apply the host has %s = %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "gone/c")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the sandbox has seen and deleted is there: %v", err)
	}
	if got := run("cat build/new x.log"); got != "mine\nmine\n" {
		t.Errorf("after apply the sandbox has %q", got)
	}
	run("echo again > build/new")
	if _, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "build/new")); string(got) != "again\n" || err != nil {
		t.Errorf("its own file, applied again, is %q, %v", got, err)
	}
	run("echo mine > a.log; echo mine > build/o")
	_, err = w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb})
	wantCode(t, "apply onto the host's own", err, codes.FailedPrecondition)
	for _, name := range []string{"a.log", "build/o"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != "host's" || err != nil {
			t.Errorf("the host has %s = %q, %v", name, got, err)
		}
	}
}

func TestIgnoreFilesThatCannotBeReadAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	for name, spoil := range map[string]func(path string) error{
		"a link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a pipe":      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a huge one":  func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o644) },
	} {
		dir := t.TempDir()
		if err := spoil(filepath.Join(dir, ".gitignore")); err != nil {
			t.Fatal(err)
		}
		r := &sandboxv1.LinkCodebaseRequest{Name: "host", OwnerId: "me", Path: dir, IgnoreFiles: true}
		_, err := w.codebases.LinkCodebase(t.Context(), r)
		wantCode(t, name, err, codes.InvalidArgument)
		r.IgnoreFiles = false
		if _, err := w.codebases.LinkCodebase(t.Context(), r); err != nil {
			t.Errorf("%s is nobody's business without ignore_files: %v", name, err)
		}
	}
}

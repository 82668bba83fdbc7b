package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// A client of a server writes rules with apply: keep. They work only below a root that the operator
// marks, bring nothing to the host that acts there, and lead no write out of the mount, also if a
// symbolic link takes the place of a directory that is kept.
func TestAClientCannotWidenWhatAServerKeeps(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kept, reviewed, outside := filepath.Join(dir, "kept"), filepath.Join(dir, "reviewed"), filepath.Join(dir, "outside")
	write := func(path, content string) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(kept+"/home/state/f", "old\n")
	write(reviewed+"/state/f", "old\n")
	write(outside+"/f", "outside\n")
	write(dir+"/keep.yaml", "version: 1\nrules:\n  - {pattern: '**', permission: write, apply: keep}\n")
	write(dir+"/server.yaml", "mounts:\n  roots:\n    - {path: "+kept+", writable: true, keep: true}\n    - {path: "+reviewed+", writable: true}\n")
	s := newServed(t)
	s.flags = []string{"--config", dir + "/server.yaml"}
	s.serve()
	agent, command := s.token("read,exec,manage,apply"), s.token("read,exec")
	mount := func(source, at string) []string {
		return []string{"create", "box", "--codebase", s.codebase, "--preset", "full-access", "--mount", source + ",dst=" + at + ",policy=" + dir + "/keep.yaml"}
	}
	if out, err := s.try(agent, mount(reviewed, "/mnt/reviewed")...); err == nil || !strings.Contains(out, "keep in mounts.roots") {
		t.Errorf("a root without keep: %v\n%s", err, out)
	}
	s.must(agent, mount(kept+"/home", "/mnt/home")...)
	s.must(agent, "run", "--name", "box", "--detach")
	want := func(when, path, content string) {
		t.Helper()
		if text, err := os.ReadFile(path); string(text) != content || err != nil && content != "" {
			t.Errorf("%s: %s is %q, %v; want %q", when, path, text, err, content)
		}
	}

	s.must(command, "exec", "box", "--", "sh", "-c", "echo early >/mnt/home/state/f")
	want("a token without the scope apply", kept+"/home/state/f", "old\n")
	s.must(agent, "apply", "box", "--in", "home", "--latest")
	s.must(agent, "stop", "box")
	s.must(agent, "run", "--name", "box", "--detach")
	out, _ := s.try(agent, "exec", "box", "--", "sh", "-c", `cd /mnt/home/state; echo kept >f; echo x >run.sh; chmod 755 run.sh; ln -s /etc/passwd link
		mkdir -p ../.git/hooks ../.vscode; echo x >../.git/hooks/pre-commit; echo x >../.vscode/tasks.json; echo x >../.bashrc; mkfifo pipe; exit 1`) // try has what it says only then
	want("marked files beside it", kept+"/home/state/f", "kept\n")
	for _, name := range []string{"state/run.sh", "state/link", "state/pipe", ".git/hooks/pre-commit", ".vscode/tasks.json", ".bashrc"} {
		if _, err := os.Lstat(kept + "/home/" + name); err == nil || !strings.Contains(out, "not kept: home:/"+name) {
			t.Errorf("%s: on the host: %t; said: %s", name, err == nil, out)
		}
	}

	s.must(agent, "exec", "box", "--", "sh", "-c", "echo more >>/mnt/home/state/f") // kept; the view has the directory by now
	if err = os.Rename(kept+"/home/state", kept+"/home/was"); err == nil {
		err = os.Symlink(outside, kept+"/home/state")
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.try(agent, "exec", "box", "--", "sh", "-c", "mkdir -p /mnt/home/state; echo evil >/mnt/home/state/f; echo evil >/mnt/home/state/new")
	s.must(agent, "stop", "box")
	want("a link in the place of a directory", outside+"/f", "outside\n")
	if _, err := os.Lstat(outside + "/new"); err == nil {
		t.Error("a file was made outside of the root")
	}
}

package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// keepingHome is the policy of a mount in which commands keep what is below state.
const keepingHome = `version: 1
rules:
  - {pattern: "**", permission: write}
  - {pattern: /state/, permission: write, apply: keep}
  - {pattern: "*.secret", permission: none, priority: 10}
  - {pattern: /conf.json, permission: write, apply: keep, keys: [history, "projects.*.history"]}
`

// A command cannot use apply: keep to bring to the host what acts there, what is not its own
// state, or anything in the place of what its rules hide.
func TestKeepBringsNothingThatActs(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"f": ""}, who...)
		home := mountedDir(t)
		write(t, s, home, "state/token", "state/x.secret", "state/script", "state/sub/a", "profile", "conf.json")
		if err := os.WriteFile(home+"/conf.json", []byte(`{"history": [1], "mcpServers": {}}`), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(home+"/state/script", 0o755); err != nil {
			t.Fatal(err)
		}
		passes(t, s, attackKeep, nil, "--preset", "full-access", "--mount", home+",dst=/opt/home,policy="+policyIn(t, s))
		want := map[string]string{
			"state/token": "theirs state/token", "state/x.secret": "theirs state/x.secret", "state/script": "theirs state/script", "state/sub/a": "theirs state/sub/a",
			"profile": "theirs profile", "state/good": "good", "conf.json": "{\"history\": [\n\"x\"\n], \"mcpServers\": {}}",
		}
		for name, content := range want {
			got, err := os.ReadFile(filepath.Join(home, name))
			if err != nil || strings.Join(strings.Fields(string(got)), "") != strings.Join(strings.Fields(content), "") {
				t.Errorf("%s holds %q, %v", name, got, err)
			}
		}
		for _, name := range []string{".git", ".envrc", "new", "link", "package.json", ".vscode", "fifo", "y.secret", "everybody"} {
			if _, err := os.Lstat(filepath.Join(home, "state", name)); err == nil {
				t.Errorf("state/%s was kept", name)
			}
		}
	})
}

var attackKeep = program("plant what acts below a keep rule", func(in *inside, _ []string) {
	at := func(name string) string { return "/opt/home/state/" + name }
	in.errno("what is hidden", opened(at("x.secret"), unix.O_RDONLY), unix.ENOENT)
	in.works("state", os.WriteFile(at("good"), []byte("good"), 0o644))
	in.works("a hook", os.MkdirAll(at(".git/hooks"), 0o755))
	in.works("a hook", os.WriteFile(at(".git/hooks/post-checkout"), []byte("evil"), 0o755))
	in.works("git's configuration", os.WriteFile(at(".git/config"), []byte("evil"), 0o644))
	in.works("an environment", os.WriteFile(at(".envrc"), []byte("evil"), 0o644))
	in.works("package scripts", os.WriteFile(at("package.json"), []byte("{}"), 0o644))
	in.works("an editor's tasks", os.MkdirAll(at(".vscode"), 0o755))
	in.works("an editor's tasks", os.WriteFile(at(".vscode/tasks.json"), []byte("{}"), 0o644))
	in.works("an executable", os.WriteFile(at("new"), []byte("#!/bin/sh"), 0o755))
	in.works("what is executable already", os.WriteFile(at("script"), []byte("evil"), 0o755))
	in.works("no longer executable", os.Chmod(at("script"), 0o644))
	in.works("a link", os.Symlink("/etc/passwd", at("link")))
	in.works("a FIFO", unix.Mkfifo(at("fifo"), 0o644))
	in.works("a link for a file", os.Remove(at("token")))
	in.works("a link for a file", os.Symlink("../profile", at("token")))
	in.works("a link for a directory", os.RemoveAll(at("sub")))
	in.works("a link for a directory", os.Symlink("..", at("sub")))
	in.works("an own entry", os.WriteFile(at("x.secret"), []byte("own"), 0o644))
	in.works("another", os.WriteFile(at("y.secret"), []byte("own"), 0o644))
	in.works("a file for everybody", os.WriteFile(at("everybody"), []byte("evil"), 0o644))
	in.works("a file for everybody", os.Chmod(at("everybody"), 0o666))
	in.works("what must be reviewed", os.WriteFile("/opt/home/profile", []byte("evil"), 0o644))
	in.works("other keys", os.WriteFile("/opt/home/conf.json", []byte(`{"history":["x"],"mcpServers":{"evil":{"command":"evil"}},"projects":{"__proto__":{"history":[2]}}}`), 0o644))
})

// policyIn writes keepingHome where the sandbox's user can read it.
func policyIn(t *testing.T, s *harness.Sandbox) string {
	t.Helper()
	file := filepath.Join(mountedDir(t), "keep.yaml")
	if err := os.WriteFile(file, []byte(keepingHome), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// A process that a command left behind swaps a file for a link and an executable while the end of
// the command keeps it.
func TestAFileThatIsSwappedWhileItIsKept(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": ""})
	home := mountedDir(t)
	write(t, s, home, "state/token", "profile")
	r := s.Agentfense("run", "--name", s.Name, "--detach", "--preset", "full-access", "--mount", home+",dst=/opt/home,policy="+policyIn(t, s))
	if r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	swap := `cd /opt/home/state; setsid sh -c 'while :; do echo good >t1; ln -sf ../profile t2; echo evil >t3; chmod 755 t3; mv t1 token; mv t2 token; mv t3 token; done' </dev/null >/dev/null 2>&1 &`
	if r := s.Agentfense("exec", s.Name, "--", "sh", "-c", swap); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	for range 15 {
		if r := s.Agentfense("exec", s.Name, "--", "true"); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		for _, name := range []string{"token", "t1", "t2", "t3"} {
			at := filepath.Join(home, "state", name)
			info, err := os.Lstat(at)
			if os.IsNotExist(err) {
				continue
			}
			if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 != 0 {
				t.Fatalf("%s was kept with mode %v, %v", name, info.Mode(), err)
			}
		}
		if got, _ := os.ReadFile(home + "/profile"); string(got) != "theirs profile" {
			t.Fatalf("the link was followed: %q", got)
		}
	}
	if r := s.Agentfense("stop", s.Name); r.Code != 0 {
		t.Errorf("%+v", r)
	}
}

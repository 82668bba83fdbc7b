package control_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// plantInHome leaves links, a pipe, a set-user-ID program and a closed directory in a
// kept home, and links in the places where a later start might mount something.
func plantInHome(host string) string {
	return `set -e; cd
		for at in .cache .config workspace .ssh; do ln -s ` + host + ` "$at"; done
		ln -s ` + host + ` link; ln -s ../../../../../../../.. up; mkdir shut; touch shut/y
		cp /bin/sh own; chmod 6755 own; mkfifo pipe
		! mknod device c 1 3 2>/dev/null; ! mknod disk b 8 0 2>/dev/null
		chmod 0 shut; echo planted`
}

// precious is a directory of the host's with one file, which nobody may reach.
func precious(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantPrecious(t *testing.T, dir string) {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("made outside: %v, %v", names, err)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(content) != "kept\n" {
		t.Errorf("%q, %v", content, err)
	}
}

// What lies in the kept home of a container leads neither the daemon, which mounts it
// anew with each start, nor a removal outside, gives no right, and no other container
// sees it.
func TestContainersKeptHomeLeadsNowhere(t *testing.T) {
	testenv.Docker(t)
	host := testenv.DockerDaemon(t)
	t.Setenv("DOCKER_HOST", host)
	box := harness.New(t, binary, map[string]string{"r": ""})
	outside := precious(t)
	run := func(name string, flags []string, script string) harness.Result {
		args := append([]string{"run", "--dir", box.Source, "--runtime", "docker", "--image", testenv.DockerImage, "--name", name}, flags...)
		return box.Agentfense(append(args, "--", "sh", "-c", script)...)
	}
	if r := run(box.Name, []string{"--home", "keep", "--disk", "8M"}, plantInHome(outside)); r.Code != 0 || !strings.Contains(r.Stdout, "planted") {
		t.Fatalf("%+v", r)
	}
	for range 2 {
		r := run(box.Name, nil, `cd; touch .cache/made workspace/made link/made 2>/dev/null
			cat link/file up`+outside+`/file; stat -c %A own; dd if=/dev/zero of=big bs=1M count=20 2>/dev/null; wc -c <big; rm big
			grep -c " $HOME" /proc/self/mountinfo`)
		if strings.Contains(r.Stdout, "kept") || strings.Contains(r.Stdout, "s") {
			t.Errorf("%+v", r)
		}
		if !strings.HasSuffix(r.Stdout, "\n1\n") {
			t.Errorf("want one mount of the home:\n%s", r.Stdout)
		}
		if strings.Contains(r.Stdout, "20971520") {
			t.Errorf("the quota does not hold:\n%s", r.Stdout)
		}
	}
	if r := run("other", []string{"--home", "keep"}, `ls -A ~; ls -A `+filepath.Join(box.Home, "sandboxes", box.Name)); strings.Contains(r.Stdout, "own") {
		t.Errorf("another sandbox sees it: %+v", r)
	}
	for _, name := range []string{box.Name, "other"} {
		if r := box.Agentfense("rm", "--force", name); r.Code != 0 {
			t.Error(r.Stderr)
		}
	}
	wantPrecious(t, outside)
	if left, err := os.ReadDir(filepath.Join(box.Home, "sandboxes")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if left := dockerCommand(t, host, "ps", "--all", "--quiet"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A volume of an image inside the kept home would have the daemon mount it at a name
// that commands have chosen.
func TestVolumeInTheKeptHome(t *testing.T) {
	testenv.Docker(t)
	host := testenv.DockerDaemon(t)
	t.Setenv("DOCKER_HOST", host)
	box := harness.New(t, binary, map[string]string{"r": ""})
	for name, volume := range map[string]string{"agentfense-in-home:latest": "/run/agentfense/home/.cache", "agentfense-over-home:latest": "/run/agentfense"} {
		id := dockerCommand(t, host, "create", testenv.DockerImage, "true")
		dockerCommand(t, host, "commit", "--change", "VOLUME "+volume, id, name)
		dockerCommand(t, host, "rm", id)
		r := box.Agentfense("run", "--dir", box.Source, "--runtime", "docker", "--image", name, "--home", "keep", "--name", box.Name, "--", "true")
		if r.Code != 125 {
			t.Errorf("%s: exit code %d\n%s", volume, r.Code, r.Stdout)
		}
		within(t, r.Stderr, "its volume "+volume, "the home")
	}
	if left := dockerCommand(t, host, "ps", "--all", "--quiet") + dockerCommand(t, host, "volume", "ls", "--quiet"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// On a server a kept home is its sandbox's alone: neither another owner nor another sandbox of
// the same codebase reaches it, no path of the API leads there, and what is planted in it acts
// on nothing outside. It is bounded, and goes with the sandbox.
func TestServersKeptHomeIsTheSandboxsAlone(t *testing.T) {
	box := harness.New(t, binary, nil)
	outside := precious(t)
	s := serve(t, box)
	alice, mallory := s.as(box, "alice"), s.as(box, "mallory")
	made := func(who *server, cb string) string {
		return who.must(http.MethodPost, "/sandboxes", fmt.Sprintf(`{"codebase_id": %q, "home": "keep", "resources": {"disk_bytes": 8388608},
			"permissions": [{"pattern": "/**", "permission": "PERMISSION_WRITE"}]}`, cb), "id")
	}
	start := func(who *server, sb string) { who.must(http.MethodPost, "/sandboxes/"+sb+"/start", "", "id") }
	run := func(who *server, sb, command string) string {
		return who.must(http.MethodPost, "/sandboxes/"+sb+"/exec", fmt.Sprintf(`{"command": %q}`, command), "stdout")
	}
	cb := alice.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id")
	hers, beside := made(alice, cb), made(alice, cb)
	his := made(mallory, mallory.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id"))
	for _, sb := range []string{hers, beside} {
		start(alice, sb)
	}
	start(mallory, his)
	if out := run(alice, hers, "echo secret > ~/token; ("+strings.ReplaceAll(plantInHome(outside), "\n", ";\n")+")"); !strings.Contains(out, "planted") {
		t.Fatal(out)
	}
	look := `ls -A ~; find / -name token -path '*home*' 2>/dev/null; ls -A ` + filepath.Join(box.Home, "sandboxes", hers)
	for who, out := range map[string]string{"beside": run(alice, beside, look), "another owner": run(mallory, his, look)} {
		if strings.Contains(out, "token") {
			t.Errorf("%s sees it: %s", who, out)
		}
	}
	for _, path := range []string{"/run/agentfense/home", "../home/top", "/homeview", "homeview/token"} {
		if status, text := alice.ask(http.MethodGet, "/sandboxes/"+hers+"/view?path="+path, ""); strings.Contains(text, "token\"") || status == http.StatusOK {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := alice.ask(http.MethodGet, "/sandboxes/"+hers+"/diff", ""); status != http.StatusOK || strings.Contains(text, "token") {
		t.Errorf("diff: %d %s", status, text)
	}
	if status, text := mallory.ask(http.MethodPost, "/sandboxes/"+hers+"/exec", `{"command": "cat ~/token"}`); status == http.StatusOK {
		t.Errorf("another owner runs in it: %s", text)
	}
	out := run(alice, hers, "head -c 20M /dev/zero > ~/big; wc -c < ~/big; rm ~/big; cat ~/link/file ~/up"+outside+"/file; touch ~/link/made")
	if strings.Contains(out, "20971520") || strings.Contains(out, "kept") {
		t.Errorf("%s", out)
	}
	alice.must(http.MethodPost, "/sandboxes/"+hers+"/stop", "", "id")
	start(alice, hers)
	if out := run(alice, hers, "cat ~/token"); out != "secret\n" {
		t.Errorf("after a start: %q", out)
	}
	for _, sb := range []string{hers, beside} {
		alice.must(http.MethodDelete, "/sandboxes/"+sb, "", "id")
	}
	mallory.must(http.MethodDelete, "/sandboxes/"+his, "", "id")
	wantPrecious(t, outside)
	if left, err := os.ReadDir(filepath.Join(box.Home, "sandboxes")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

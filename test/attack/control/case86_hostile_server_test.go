package control_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// What the server names is no way out of the directory, and no file of a kind that a
// program inside could not make, also if all of it was shown.
func TestAHostileServerReachesNothingOutside(t *testing.T) {
	dir := func(path string) change { return change{path: path, status: added, mode: unix.S_IFDIR | 0o755} }
	file := func(path string) change {
		return change{path: path, status: added, mode: evilFile, content: hostileWord}
	}
	for name, changes := range map[string][]change{
		"up":                      {file("../outside/evil")},
		"up from within":          {file("sub/../../outside/evil")},
		"up from the root":        {file("/../outside/evil")},
		"over what is there":      {{path: "../outside/keep", status: modified, mode: evilFile, content: hostileWord}},
		"a removal":               {{path: "../outside/keep", status: deleted}},
		"NUL":                     {file("evil\x00/../../outside/evil")},
		"an escaped way up":       {file(`\x2e\x2e/outside/evil`), file(`..\x2foutside/evil`)},
		"through a link":          {file("link/evil")},
		"over one behind a link":  {{path: "link/keep", status: modified, mode: evilFile, content: hostileWord}},
		"through a link it sends": {{path: "l", status: added, mode: unix.S_IFLNK | 0o777, content: "../outside"}, file("l/evil")},
		"behind a directory":      {dir("d"), {path: "d", status: retyped, mode: unix.S_IFLNK | 0o777, content: "../outside"}, file("d/evil")},
		"a character device":      {{path: "null", status: added, mode: unix.S_IFCHR | 0o666}},
		"a block device":          {{path: "disk", status: added, mode: unix.S_IFBLK | 0o666}},
		"a socket":                {{path: "sock", status: added, mode: unix.S_IFSOCK | 0o666}},
		"no type":                 {{path: "typeless", status: added, mode: 0o666}},
		"a hidden file":           {{path: ".env", status: modified, mode: evilFile, content: hostileWord}},
		"less than announced":     {{path: "short", status: added, mode: evilFile, content: hostileWord, size: 1 << 40}},
		"more than announced":     {{path: "long", status: added, mode: evilFile, content: hostileWord, size: 1}},
		"a size below nothing":    {{path: "negative", status: added, mode: evilFile, content: hostileWord, size: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			if name == "a hidden file" { // it was not uploaded so
				if err := os.WriteFile(filepath.Join(v.root, "work/.env"), []byte("changed\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			before := v.tree()
			for _, c := range changes {
				v.server.shows = append(v.server.shows, v.server.shown(c))
			}
			v.server.sending(changes...)
			v.agentfense("diff", "fix")
			for _, verb := range [][]string{{"apply", "fix"}, {"apply", "fix", "--latest"}, {"apply", "fix", "--latest", "--json"}} {
				v.agentfense(verb...)
				v.unharmed(before, "work/l", "work/d") // a link itself may be made, as in a sandbox here
			}
		})
	}
}

// Nothing comes back that was not shown: no other path, no other content, no other
// kind of file.
func TestAHostileServerBringsNothingThatItDidNotShow(t *testing.T) {
	harmless := change{path: "a", status: modified, mode: unix.S_IFREG | 0o644, content: "two\n"}
	hook := change{path: ".git/hooks/post-checkout", status: added, mode: evilFile, content: "#!/bin/sh\n" + hostileWord}
	for name, sent := range map[string][]change{
		"a hook besides":       {harmless, hook},
		"a hook first":         {hook, harmless},
		"a removal":            {harmless, {path: "sub/x", status: deleted}},
		"a directory":          {harmless, {path: "sub", status: deleted}},
		"another content":      {{path: "a", status: modified, mode: harmless.mode, content: hostileWord}},
		"another mode":         {{path: "a", status: modified, mode: evilFile, content: harmless.content}},
		"a link in its place":  {{path: "a", status: retyped, mode: unix.S_IFLNK | 0o777, content: "../outside/keep"}},
		"its removal":          {{path: "a", status: deleted}},
		"a directory in place": {{path: "a", status: retyped, mode: unix.S_IFDIR | 0o755}, {path: "a/evil", status: added, mode: evilFile, content: hostileWord}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			before := v.tree()
			v.server.shows = []*sandboxv1.FileDiff{v.server.shown(harmless)}
			if out, code := v.agentfense("diff", "fix"); code != 0 {
				t.Fatal(out)
			}
			v.server.sending(sent...)
			if out, code := v.agentfense("apply", "fix"); code == 0 {
				t.Errorf("it ends with 0:\n%s", out)
			}
			v.unharmed(before)
			// Nor does it help to show more of it later: that is not what was looked at.
			v.server.shows = append(v.server.shows, v.server.shown(hook))
			if name == "a hook besides" {
				if out, code := v.agentfense("apply", "fix"); code == 0 {
					t.Errorf("it ends with 0:\n%s", out)
				}
				v.unharmed(before)
			}
		})
	}
}

// What was shown comes back, so that the tests above refuse for the right reason.
func TestWhatAServerShowedComesBack(t *testing.T) {
	v := newVictim(t)
	shown := change{path: "a", status: modified, mode: unix.S_IFREG | 0o644, content: "two\n"}
	v.server.shows = []*sandboxv1.FileDiff{v.server.shown(shown)}
	v.server.sending(shown)
	if out, code := v.agentfense("diff", "fix"); code != 0 {
		t.Fatal(out)
	}
	before := v.tree()
	v.agentfense("apply", "fix")
	if got := v.tree()["work/a"]; got != "-rw-r--r-- two\n" {
		t.Errorf("a is %q", got)
	}
	v.unharmed(before, "work/a")
}

// A text that is shown is the one that comes: of a new file a server cannot show one
// and name the sum of another.
func TestAHostileServerShowsTheTextThatItNames(t *testing.T) {
	v := newVictim(t)
	before := v.tree()
	evil := change{path: "new", status: added, mode: evilFile, content: hostileWord}
	d := v.server.shown(evil)
	d.Binary, d.Patch = false, "diff --git a/new b/new\nnew file mode 100755\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+harmless\n"
	v.server.shows = []*sandboxv1.FileDiff{d}
	v.server.sending(evil)
	if out, code := v.agentfense("diff", "fix"); code == 0 || !strings.Contains(out, "patch does not match its SHA-256") {
		t.Errorf("diff ends with %d:\n%s", code, out)
	}
	if out, code := v.agentfense("apply", "fix"); code == 0 {
		t.Errorf("apply ends with 0:\n%s", out)
	}
	v.unharmed(before)
}

// A content that does not end, and changes that do not, end with an error.
func TestAHostileServerIsNotListenedToForEver(t *testing.T) {
	shown := change{path: "a", status: modified, mode: unix.S_IFREG | 0o644, content: "two\n"}
	for name, endless := range map[string]func(i int) *sandboxv1.ReadChangesResponse{
		"a content": func(int) *sandboxv1.ReadChangesResponse { return piece(strings.Repeat(hostileWord, 1<<10)) },
		"new files": func(i int) *sandboxv1.ReadChangesResponse {
			return header(change{path: fmt.Sprintf("evil%d", i), status: added, mode: unix.S_IFDIR | 0o755}, "")
		},
		"one change": func(int) *sandboxv1.ReadChangesResponse { return header(shown, "") },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			before := v.tree()
			v.server.shows = []*sandboxv1.FileDiff{v.server.shown(shown)}
			if out, code := v.agentfense("diff", "fix"); code != 0 {
				t.Fatal(out)
			}
			v.server.sends = func(send func(*sandboxv1.ReadChangesResponse) error) error {
				err := send(header(shown, ""))
				for i := 0; err == nil; i++ {
					err = send(endless(i))
				}
				return err
			}
			if out, code := v.agentfense("apply", "fix"); code == 0 {
				t.Errorf("it ends with 0:\n%s", out)
			}
			v.unharmed(before)
		})
	}
}

// A server that names variables gets none of them: the client alone says which of its
// own it passes on.
func TestAHostileServerAsksForNoVariable(t *testing.T) {
	v := newVictim(t)
	t.Setenv("HOSTILE_TEST_TOKEN", "secret")
	t.Setenv("HOSTILE_TEST_PASSED", "passed")
	v.server.wants = []string{"HOSTILE_TEST_TOKEN", "HOSTILE_TEST_PASSED", hostileText}
	v.server.got = make(chan *sandboxv1.AttachRequest_Start, 1)
	for _, verb := range []string{"run --name fix --env HOSTILE_TEST_PASSED -- true", "exec fix -- true"} { // the second one remembers
		if out, code := v.agentfense(strings.Fields(verb)...); code != 0 {
			t.Errorf("%s ends with %d:\n%s", verb, code, out)
		}
		select {
		case start := <-v.server.got:
			if got := start.Env["HOSTILE_TEST_PASSED"]; got != "passed" {
				t.Errorf("%s: what the person named is %q", verb, got)
			}
			if strings.Contains(start.String(), "secret") {
				t.Errorf("%s: the server got %v", verb, start)
			}
		default:
			t.Errorf("%s: no command came", verb)
		}
	}
	v.agentfense("inspect", "fix")
}

// Names, reasons and groups of a server do not steer the terminal.
func TestAHostileServerDoesNotSteerTheTerminal(t *testing.T) {
	v := newVictim(t)
	evil := change{path: "x" + hostileText + "\ny", status: added, mode: evilFile, content: hostileWord + hostileText}
	v.server.shows = []*sandboxv1.FileDiff{v.server.shown(evil)}
	v.server.sending(evil)
	for _, verb := range []string{"diff fix", "diff fix --stat", "diff fix --name-status", "diff fix --json", "ls", "ls --json", "inspect fix", "apply fix --dry-run", "apply fix --json --dry-run", "apply fix", "rm fix"} {
		v.agentfense(strings.Fields(verb)...)
	}
}

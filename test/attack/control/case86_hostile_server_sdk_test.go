package control_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/client"
)

// connected is the Go client's object for the sandbox of a victim.
func (v *victim) connected() *client.Sandbox {
	v.t.Helper()
	v.t.Setenv("AGENTFENSE_HOME", filepath.Join(v.root, "home"))
	box, err := client.Connect(v.t.Context(), hostileSandbox, client.WithEndpoint(v.at), client.WithToken("t"))
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { box.Close() })
	return box
}

// sdkApply is an apply of the Python package. It returns the kind of the error.
func (v *victim) sdkApply(request string) string {
	v.t.Helper()
	cmd := exec.CommandContext(v.t.Context(), binary, "__sdk", "apply", hostileSandbox)
	cmd.Dir, cmd.Stdin = filepath.Join(v.root, "work"), strings.NewReader(request)
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+filepath.Join(v.root, "home"), "AGENTFENSE_ENDPOINT="+v.at, "AGENTFENSE_TOKEN=t")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var answer struct {
		Error *struct{ Kind, Message string }
	}
	if err := errors.Join(err, json.Unmarshal(out, &answer)); err != nil {
		v.t.Fatalf("%v: %s %s", err, out, said.String())
	}
	if answer.Error == nil {
		return ""
	}
	return answer.Error.Kind
}

// The applies of the SDKs refuse what the command line's refuses.
func TestAHostileServerReachesNothingMoreByTheSDKs(t *testing.T) {
	v := newVictim(t)
	box := v.connected()
	before := v.tree()
	harmless := change{path: "a", status: modified, mode: unix.S_IFREG | 0o644, content: "two\n"}
	for name, sent := range map[string]change{
		"up":             {path: "../outside/evil", status: added, mode: evilFile, content: hostileWord},
		"through a link": {path: "link/evil", status: added, mode: evilFile, content: hostileWord},
		"a device":       {path: "null", status: added, mode: unix.S_IFCHR | 0o666},
	} {
		v.server.shows = []*sandboxv1.FileDiff{v.server.shown(sent)}
		v.server.sending(sent)
		if _, err := box.Apply(t.Context()); err == nil {
			t.Errorf("%s: the Go client applies it", name)
		}
		if v.sdkApply(`{}`) == "" {
			t.Errorf("%s: the Python package applies it", name)
		}
		v.unharmed(before)
	}
	v.server.shows = []*sandboxv1.FileDiff{v.server.shown(harmless)}
	review, err := box.Review(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hook := change{path: ".git/hooks/post-checkout", status: added, mode: evilFile, content: hostileWord}
	v.server.sending(harmless, hook)
	if _, err := box.ApplyReviewed(t.Context(), review.Digest); !errors.Is(err, client.ErrInternal) {
		t.Errorf("the Go client takes what was not shown: %v", err)
	}
	shown := `{"digest": "` + hostileDigest + `", "shown": [{"path": "a", "status": "modified", "mode": 33188, "sha256": "` + harmless.state().Sha256 + `"}]}`
	if kind := v.sdkApply(shown); kind != "internal" {
		t.Errorf("the Python package takes what was not shown: %q", kind)
	}
	v.unharmed(before)
	v.server.sending(harmless)
	if _, err := box.ApplyReviewed(t.Context(), review.Digest); err != nil || v.tree()["work/a"] != "-rw-r--r-- two\n" {
		t.Errorf("what was shown: %v, %q", err, v.tree()["work/a"])
	}
}

// A server that gives a new sandbox the id of one that is known here gets the changes of
// the one not into the directory of the other, and does not have that forgotten.
func TestAHostileServerCannotExchangeDirectories(t *testing.T) {
	v := newVictim(t)
	t.Setenv("AGENTFENSE_HOME", filepath.Join(v.root, "home"))
	before := v.tree()
	box, err := client.FromLocal(t.Context(), filepath.Join(v.root, "outside"), client.WithEndpoint(v.at), client.WithToken("t"), client.WithUpload(), client.WithoutStart())
	if err != nil {
		t.Fatal(err)
	}
	evil := change{path: "evil", status: added, mode: evilFile, content: hostileWord}
	v.server.shows = []*sandboxv1.FileDiff{v.server.shown(evil)}
	v.server.sending(evil)
	if _, err := box.Apply(t.Context()); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("apply: %v", err)
	}
	v.unharmed(before)
	if err := box.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if found, err := filepath.Glob(filepath.Join(v.root, "home/uploads/sandboxes/*/uploaded.json")); err != nil || len(found) != 1 {
		t.Errorf("what was uploaded first is remembered as %v, %v", found, err)
	}
}

//go:build linux

package client_test

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// repository makes a directory with files.
func repository(t testing.TB, files map[string]string) string {
	t.Helper()
	testenv.FUSE(t)
	testenv.Bwrap(t)
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// existing are the codebases and sandboxes that the server has.
func existing(t testing.TB) []string {
	t.Helper()
	c, err := client.New(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var ids []string
	for info, err := range c.Sandboxes(context.WithoutCancel(t.Context())) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	for base, err := range c.Codebases(context.WithoutCancel(t.Context()), "") {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, base.ID)
	}
	return ids
}

// leavesNothing fails if the test leaves a thing on the server or a goroutine.
func leavesNothing(t *testing.T) {
	t.Helper()
	before, running := existing(t), goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if diff := cmp.Diff(before, existing(t)); diff != "" {
			t.Errorf("left on the server (-before +after):\n%s", diff)
		}
		goleak.VerifyNone(t, running)
	})
}

var shop = map[string]string{
	"main.sh": "echo hello\n", "src/lib.sh": "lib\n", ".gitignore": "*.log\n", "debug.log": "noise\n", ".env": "TOKEN=1\n", "big/data.bin": "data\n",
}

func TestDirectoryOfThisHostIsLinkedOnOnesOwnServer(t *testing.T) {
	leavesNothing(t)
	dir := repository(t, shop)
	box, err := client.FromLocal(t.Context(), dir, client.WithPreset("development"), client.WithLabels(map[string]string{"a": "b"}))
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if r := run(t, box, "ls -A; echo new >>main.sh"); string(r.Stdout) != ".gitignore\nbig\ndebug.log\nmain.sh\nsrc\n" {
		t.Errorf("%q %q", r.Stdout, r.Stderr)
	}
	if _, err := box.Apply(t.Context()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "main.sh")); string(text) != "echo hello\nnew\n" {
		t.Errorf("%q %v", text, err)
	}
	info, err := box.Info(t.Context())
	if err != nil || info.Labels["a"] != "b" || info.Runtime != client.Bwrap {
		t.Errorf("%+v %v", info, err)
	}
	if err := errors.Join(box.Close(), box.Close()); err != nil {
		t.Error(err)
	}
	if err := box.Destroy(t.Context()); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}

func TestLinkHidesWhatIsIgnoredWhereThatIsAskedFor(t *testing.T) {
	leavesNothing(t)
	box, err := client.FromLocal(t.Context(), repository(t, shop), client.WithPreset("development"), client.WithIgnoreFiles())
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if r := run(t, box, "ls -A"); string(r.Stdout) != ".gitignore\nbig\nmain.sh\nsrc\n" {
		t.Errorf("%q %q", r.Stdout, r.Stderr)
	}
}

func TestOwnerIsThisUserWhereTheTokenHasNone(t *testing.T) {
	leavesNothing(t)
	t.Setenv("USER", "somebody-else")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range map[string]client.LocalOption{"linked": client.WithLink(), "uploaded": client.WithUpload()} {
		box, err := client.FromLocal(t.Context(), repository(t, shop), how)
		if err != nil {
			t.Fatal(err)
		}
		info, err := box.Info(t.Context())
		if err := errors.Join(err, box.Close()); err != nil {
			t.Error(err)
		}
		if info.OwnerID != me.Username {
			t.Errorf("%s: owner %q, want %q", name, info.OwnerID, me.Username)
		}
	}
}

func TestDirectoryIsUploadedWhereItIsAskedFor(t *testing.T) {
	leavesNothing(t)
	dir := repository(t, shop)
	if err := errors.Join(os.Symlink("main.sh", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "empty"), 0o700), os.Chmod(filepath.Join(dir, "main.sh"), 0o750)); err != nil {
		t.Fatal(err)
	}
	for name, with := range map[string]client.LocalOption{"WithUpload": client.WithUpload(), "WithIgnore": client.WithIgnorePatterns("big", "!debug.log")} {
		box, err := client.FromLocal(t.Context(), dir, with, client.WithPreset("full-access"))
		if err != nil {
			t.Fatal(err)
		}
		want := ".gitignore big empty link main.sh src 750 700 main.sh "
		if name == "WithIgnore" {
			want = ".gitignore debug.log empty link main.sh src 750 700 main.sh "
		}
		if r := run(t, box, "ls -A; stat -c %a main.sh empty; readlink link; echo x >main.sh"); strings.ReplaceAll(string(r.Stdout), "\n", " ") != want {
			t.Errorf("%s: %q", name, r.Stdout)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "main.sh")); string(text) != shop["main.sh"] {
		t.Errorf("the directory was changed: %q %v", text, err)
	}
}

func TestADirectoryWithNothingToUploadIsUploaded(t *testing.T) {
	leavesNothing(t)
	for name, files := range map[string]map[string]string{"an empty one": nil, "one whose files are left out": shop} {
		box, err := client.FromLocal(t.Context(), repository(t, files), client.WithIgnorePatterns("*"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r := run(t, box, "ls -A"); len(r.Stdout) > 0 {
			t.Errorf("%s: inside is %q", name, r.Stdout)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
	c := open(t)
	if _, err := c.UploadTree(t.Context(), "cb_0000000000000000", t.TempDir()); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("to no codebase: %v", err)
	}
	base, err := c.LinkCodebase(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.UploadTree(t.Context(), base.ID, t.TempDir()); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("to a linked one: %v", err)
	}
	if err := c.DeleteCodebase(t.Context(), base.ID); err != nil {
		t.Error(err)
	}
}

func TestDirectoriesWhoseNamesAreNoUTF8(t *testing.T) {
	leavesNothing(t)
	dir := filepath.Join(repository(t, nil), "n\xffon")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "f"), []byte("here"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for name, with := range map[string]client.LocalOption{"linked": client.WithLink(), "uploaded": client.WithUpload()} {
		box, err := client.FromLocal(t.Context(), dir, with)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r := run(t, box, "cat f"); string(r.Stdout) != "here" {
			t.Errorf("%s: %q %q", name, r.Stdout, r.Stderr)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNothingStaysAfterAnError(t *testing.T) {
	leavesNothing(t)
	dir := repository(t, shop)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, try := range map[string]struct {
		ctx     context.Context
		dir     string
		options []client.LocalOption
		want    error
	}{
		"no directory":       {dir: dir + "/none", want: client.ErrNotFound},
		"no directory named": {want: client.ErrInvalid},
		"a file":             {dir: dir + "/main.sh", want: client.ErrInvalid},
		"an unknown preset":  {dir: dir, options: []client.LocalOption{client.WithPreset("agent-save")}, want: client.ErrInvalid},
		"a malformed rule":   {dir: dir, options: []client.LocalOption{client.WithPermissions(client.PermissionRule{Pattern: "[", Permission: client.Read})}, want: client.ErrInvalid},
		"an unknown runtime": {dir: dir, options: []client.LocalOption{client.WithRuntime("vm")}, want: client.ErrInvalid},
		"contradicting":      {dir: dir, options: []client.LocalOption{client.WithLink(), client.WithIgnorePatterns("x")}, want: client.ErrInvalid},
		"malformed patterns": {dir: dir, options: []client.LocalOption{client.WithIgnorePatterns(strings.Repeat("x", 2000))}, want: client.ErrInvalid},
		// Whether a daemon runs here or not.
		"a malformed image": {
			dir: dir, options: []client.LocalOption{client.WithRuntime(client.Docker), client.WithImage("no such image")}, want: client.ErrInvalid,
		},
		"an absent image": {
			dir: dir, options: []client.LocalOption{client.WithRuntime(client.Docker), client.WithImage("localhost/no-such-image:none")}, want: client.ErrPrecondition,
		},
		"a dead server":    {dir: dir, options: []client.LocalOption{client.WithEndpoint("127.0.0.1:1")}, want: client.ErrUnavailable},
		"no endpoint":      {dir: dir, options: []client.LocalOption{client.WithEndpoint("ftp://x")}, want: client.ErrInvalid},
		"an ended context": {ctx: canceled, dir: dir, want: context.Canceled},
	} {
		if try.ctx == nil {
			try.ctx = t.Context()
		}
		box, err := client.FromLocal(try.ctx, try.dir, try.options...)
		if !errors.Is(err, try.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			box.Close()
		}
	}
}

// The moment at which a context ends is the caller's affair; what it had begun
// is gone whenever that was.
func TestNothingStaysAfterACancellation(t *testing.T) {
	leavesNothing(t)
	dir := repository(t, shop)
	for wait := range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			box, err := client.FromLocal(ctx, dir)
			switch {
			case err == nil: // it was quicker
				err = box.Close()
			case errors.Is(err, context.Canceled):
				err = nil
			}
			if err != nil {
				t.Error(err)
			}
		}()
		for range wait * wait * 40 { // some more work each time
			_ = strings.Repeat("x", 4096)
		}
		cancel()
		<-done
	}
}

func TestDestroyWithAnEndedContext(t *testing.T) {
	leavesNothing(t)
	dir := repository(t, shop)
	ctx, cancel := context.WithCancel(t.Context())
	box, err := client.FromLocal(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	x, err := box.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := errors.Join(x.Close(ctx), box.Destroy(ctx)); err != nil {
		t.Error(err)
	}
}

func TestSandboxesThatAreFound(t *testing.T) {
	leavesNothing(t)
	box, err := client.FromLocal(t.Context(), repository(t, shop))
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	info, err := box.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := client.FromCodebase(t.Context(), info.CodebaseID, client.WithoutStart())
	if err != nil {
		t.Fatal(err)
	}
	if state, err := second.Info(t.Context()); err != nil || state.Status != client.StatusPending {
		t.Errorf("%+v %v", state, err)
	}
	again, err := client.Connect(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, again, "sh main.sh"); string(r.Stdout) != "hello\n" {
		t.Errorf("%q", r.Stdout)
	}
	if err := errors.Join(again.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	if r := run(t, box, "true"); !r.Success() {
		t.Error("Close of a sandbox that was found has ended it")
	}
	if _, err := client.Connect(t.Context(), second.ID); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}

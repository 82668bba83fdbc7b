//go:build linux

package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
)

// content is what a file holds, "" with the error if it cannot be read.
func content(t testing.TB, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "(" + errors.Unwrap(err).Error() + ")"
	}
	return string(text)
}

// brought makes a sandbox of a directory with the shop's files.
func brought(t testing.TB, how client.LocalOption, more ...client.LocalOption) (*client.Sandbox, string) {
	t.Helper()
	dir := repository(t, shop)
	box, err := client.FromLocal(t.Context(), dir, append(more, how, client.WithPreset("development"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return box, dir
}

// Apply answers alike and leaves the same files, whether the directory is linked or
// uploaded.
func TestApplyChangesTheDirectoryWhetherLinkedOrUploaded(t *testing.T) {
	type told struct {
		dry, done client.ApplyResult
		files     []string
	}
	var both []told
	for _, how := range []client.LocalOption{client.WithLink(), client.WithUpload()} {
		box, dir := brought(t, how)
		run(t, box, "echo new >>main.sh; rm src/lib.sh; mkdir d; echo x >d/x; chmod 755 main.sh")
		dry, err := box.ApplyDryRun(t.Context())
		if err != nil || content(t, dir, "main.sh") != "echo hello\n" {
			t.Fatalf("%v %q", err, content(t, dir, "main.sh"))
		}
		done, err := box.Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		one := told{dry: *dry, done: *done}
		one.done.TransactionID = "" // only a linked directory has a history
		for _, name := range []string{"main.sh", "src/lib.sh", "d/x", ".env", "debug.log"} {
			one.files = append(one.files, content(t, dir, name))
		}
		both = append(both, one)
		if left, err := box.Diff(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("after the apply: %v %v", left, err)
		}
		run(t, box, "echo more >>main.sh")
		if _, err := box.Apply(t.Context(), "main.sh"); err != nil || content(t, dir, "main.sh") != "echo hello\nnew\nmore\n" {
			t.Errorf("the second time: %v %q", err, content(t, dir, "main.sh"))
		}
	}
	if diff := cmp.Diff(both[0], both[1], cmp.AllowUnexported(told{})); diff != "" {
		t.Errorf("linked and uploaded differ (-linked +uploaded):\n%s", diff)
	}
	if both[1].done.AppliedCount == 0 || both[1].files[2] != "x\n" {
		t.Errorf("%+v", both[1])
	}
}

func TestApplyRefusesWhatIsNotWhatWasUploaded(t *testing.T) {
	box, dir := brought(t, client.WithUpload())
	outside := t.TempDir()
	run(t, box, "echo in >>main.sh; echo in >>src/lib.sh; echo in >debug.log; mkdir out; echo in >out/x")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "main.sh"), []byte("here\n"), 0o644), os.Symlink(outside, filepath.Join(dir, "out"))); err != nil {
		t.Fatal(err)
	}
	_, err := box.Apply(t.Context())
	conflict := (*client.Error)(nil)
	if !errors.As(err, &conflict) || !errors.Is(err, client.ErrConflict) || !errors.Is(err, client.ErrPrecondition) {
		t.Fatal(err)
	}
	slices.Sort(conflict.Conflicts)
	if diff := cmp.Diff([]string{"debug.log", "main.sh", "out", "out/x"}, conflict.Conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"main.sh": "here\n", "src/lib.sh": "lib\n", "debug.log": "noise\n"} {
		if got := content(t, dir, name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("behind the link: %v %v", left, err)
	}
	dry, err := box.ApplyDryRun(t.Context())
	if err != nil || dry.AppliedCount != 0 || dry.Results[0].Outcome != client.OutcomeConflict {
		t.Errorf("%+v %v", dry, err)
	}
	if _, err := box.Apply(t.Context(), "src"); err != nil || content(t, dir, "src/lib.sh") != "lib\nin\n" {
		t.Errorf("%v %q", err, content(t, dir, "src/lib.sh"))
	}
	if _, err := box.Apply(t.Context(), ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an empty path: %v", err)
	}
	if _, err := box.Apply(t.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a path at which nothing changed: %v", err)
	}
}

func TestApplyReviewedOfAnUploadTakesWhatWasShown(t *testing.T) {
	box, dir := brought(t, client.WithUpload())
	run(t, box, "echo in >>main.sh; echo in >>src/lib.sh")
	review, err := box.Review(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run(t, box, "echo evil >>main.sh")
	result, err := box.ApplyReviewed(t.Context(), review.Digest)
	if err != nil || result.AppliedCount != 1 || result.Results[0].Outcome != client.OutcomeChangedSinceReview {
		t.Errorf("%+v %v", result, err)
	}
	if content(t, dir, "main.sh") != "echo hello\n" || content(t, dir, "src/lib.sh") != "lib\nin\n" {
		t.Errorf("%q %q", content(t, dir, "main.sh"), content(t, dir, "src/lib.sh"))
	}
}

// What was uploaded is known to another process too, and forgotten with the sandbox.
func TestWhatWasUploadedIsRememberedWithTheSandbox(t *testing.T) {
	box, dir := brought(t, client.WithUpload())
	run(t, box, "echo in >>main.sh")
	other, err := client.Connect(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.SetPolicy(t.Context(), client.Policy{Preset: "view-only"}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Apply(t.Context()); !errors.Is(err, client.ErrDenied) || content(t, dir, "main.sh") != "echo hello\n" {
		t.Errorf("%v %q", err, content(t, dir, "main.sh"))
	}
	if err := other.SetPolicy(t.Context(), client.Policy{Preset: "development"}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Apply(t.Context()); err != nil || content(t, dir, "main.sh") != "echo hello\nin\n" {
		t.Errorf("%v %q", err, content(t, dir, "main.sh"))
	}
	if err := errors.Join(other.Close(), box.Close()); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("AGENTFENSE_HOME"), "uploads", "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// Where it cannot be kept what was uploaded, nothing reaches the directory or the
// server's copy: Apply says why.
func TestApplySaysWhyItCannotComeBack(t *testing.T) {
	own, serves := endpoint.FindDefault(os.Getenv("AGENTFENSE_HOME"))
	if !serves {
		t.Fatal("no server of this user's own")
	}
	t.Setenv("AGENTFENSE_TOKEN_FILE", own.TokenFile)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGENTFENSE_HOME", file)
	box, dir := brought(t, client.WithUpload())
	run(t, box, "echo in >>main.sh")
	if _, err := box.Apply(context.WithoutCancel(t.Context())); !errors.Is(err, client.ErrPrecondition) {
		t.Error(err)
	}
	if content(t, dir, "main.sh") != "echo hello\n" {
		t.Error(content(t, dir, "main.sh"))
	}
}

// git inside is who the caller is to git outside, or who the caller says.
func TestGitInsideKnowsTheCaller(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("[user]\nname = Ann Other\nemail = ann@example.org\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	for _, tt := range []struct {
		name string
		with []client.LocalOption
		want string
	}{
		{name: "by default", want: "\tname = \"Ann Other\"\n\temail = \"ann@example.org\"\n"},
		{"as the program says", []client.LocalOption{client.WithGitUser("bot", "b@example.org")}, "\tname = \"bot\"\n\temail = \"b@example.org\"\n"},
		{"not at all", []client.LocalOption{client.WithGitUser("", "")}, ""},
	} {
		for how, option := range map[string]client.LocalOption{"linked": client.WithLink(), "uploaded": client.WithUpload()} {
			box, _ := brought(t, option, tt.with...)
			if r := run(t, box, "grep -E '^[[:space:]]*(name|email) ' /etc/gitconfig"); string(r.Stdout) != tt.want {
				t.Errorf("%s, %s: %q, want %q", tt.name, how, r.Stdout, tt.want)
			}
		}
	}
}

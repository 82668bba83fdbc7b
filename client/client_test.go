//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/client"
)

func run(t *testing.T, box *client.Sandbox, command string) *client.ExecResult {
	t.Helper()
	r, err := box.Run(t.Context(), command)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestApplyTakesWhatWasReviewed(t *testing.T) {
	c := open(t)
	box, dir := linked(t, c, "development", map[string]string{"f": "old\n", "g": "old\n"})
	run(t, box, "echo good >f; echo good >g")
	review, err := box.Review(t.Context())
	if err != nil || len(review.Files) != 2 || len(review.Digest) != 64 || len(review.Files[0].New.SHA256) != 64 {
		t.Fatalf("review: %+v, %v", review, err)
	}
	run(t, box, "echo evil >f")
	did, err := box.ApplyReviewed(t.Context(), review.Digest)
	if err != nil || did.AppliedCount != 1 || did.Results[0].Path != "f" || did.Results[0].Outcome != client.OutcomeChangedSinceReview {
		t.Errorf("apply: %+v, %v", did, err)
	}
	for name, want := range map[string]string{"f": "old\n", "g": "good\n"} {
		if text, err := os.ReadFile(dir + "/" + name); err != nil || string(text) != want {
			t.Errorf("%s on the host: %q, %v", name, text, err)
		}
	}
	if _, err := box.ApplyReviewed(t.Context(), ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("apply without a digest: %v", err)
	}
	if _, err := box.ApplyReviewed(t.Context(), strings.Repeat("0", 64)); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("apply of what was never shown: %v", err)
	}
}

func TestCommandSeesThePolicyAndItsChangesAreReviewed(t *testing.T) {
	c := open(t)
	box, dir := linked(t, c, "development", map[string]string{"kept": "old\n", "dropped": "old\n", ".env": "secret\n"})
	r := run(t, box, "ls -a; echo new >kept; echo x >dropped; rm -f none; cat .env; exit 3")
	if r.ExitCode != 3 || r.Success() || strings.Contains(string(r.Stdout), ".env") || !strings.Contains(string(r.Stderr), "No such file") {
		t.Errorf("%d %q %q", r.ExitCode, r.Stdout, r.Stderr)
	}
	changes, err := box.Diff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, change := range changes {
		got = append(got, string(change.Status)+" "+change.Path)
	}
	if diff := cmp.Diff([]string{"modified dropped", "modified kept"}, got); diff != "" {
		t.Error(diff)
	}
	if len(changes) == 2 && !strings.Contains(string(changes[1].Patch), "\n-old\n+new\n") {
		t.Errorf("patch: %s", changes[1].Patch)
	}
	would, err := box.ApplyDryRun(t.Context(), "kept")
	if err != nil || would.AppliedCount != 1 || len(would.Results) != 1 || would.Results[0].Path != "kept" {
		t.Errorf("dry run: %v, %v", would, err)
	}
	if all, err := box.ApplyDryRun(t.Context(), "/workspace"); err != nil || all.AppliedCount != 2 {
		t.Errorf("dry run of the root: %v, %v", all, err)
	}
	if _, err := box.Apply(t.Context(), ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("apply of an empty path: %v", err)
	}
	if _, err := box.Discard(t.Context(), "kept", ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("discard of an empty path: %v", err)
	}
	done, err := box.Apply(t.Context(), "kept")
	if err != nil || len(done.Results) != 1 || done.Results[0].Outcome != "applied" || done.AppliedCount != 1 {
		t.Errorf("apply: %v, %v", done, err)
	}
	if text, err := os.ReadFile(dir + "/kept"); err != nil || string(text) != "new\n" {
		t.Errorf("on the host: %q, %v", text, err)
	}
	gone, err := box.Discard(t.Context())
	if err != nil || gone.PathCount != 1 || len(gone.Paths) != 1 || gone.Paths[0] != "dropped" {
		t.Errorf("discard: %v, %v", gone, err)
	}
	if r := run(t, box, "cat dropped"); string(r.Stdout) != "old\n" {
		t.Errorf("after discard: %q", r.Stdout)
	}
}

func TestApplyInConflict(t *testing.T) {
	box, dir := linked(t, open(t), "full-access", map[string]string{"a": "a\n", "b": "b\n"})
	run(t, box, "echo agent >a; echo agent >b")
	if err := os.WriteFile(dir+"/a", []byte("somebody else\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := box.Apply(t.Context())
	told := (*client.Error)(nil)
	if !errors.Is(err, client.ErrConflict) || !errors.Is(err, client.ErrPrecondition) || !errors.As(err, &told) || !slices.Equal(told.Conflicts, []string{"a"}) {
		t.Errorf("conflict: %v", err)
	}
	if err := box.SetPolicy(t.Context(), client.Policy{Preset: "read-only"}); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Apply(t.Context(), "b"); !errors.Is(err, client.ErrDenied) || errors.Is(err, client.ErrConflict) {
		t.Errorf("what may not be written: %v", err)
	}
	if text, err := os.ReadFile(dir + "/b"); err != nil || string(text) != "b\n" {
		t.Errorf("on the host: %q, %v", text, err)
	}
}

func TestRulesOfALiveSandboxChange(t *testing.T) {
	box, _ := linked(t, open(t), "read-only", map[string]string{"a": "a\n"})
	if r := run(t, box, "echo x >b"); r.Success() {
		t.Error("read-only is written")
	}
	err := box.SetPolicy(t.Context(), client.Policy{Rules: []client.PermissionRule{{Pattern: "**/*", Permission: client.Write}, {Pattern: "/a", Permission: client.View, Type: client.File, Priority: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, box, "echo x >b && ls && cat a"); string(r.Stdout) != "a\nb\n" || r.ExitCode != 1 {
		t.Errorf("%d %q %q", r.ExitCode, r.Stdout, r.Stderr)
	}
	why, err := box.Explain(t.Context(), "a")
	if err != nil || why.Permission != client.View || why.Reason == "" {
		t.Errorf("%+v, %v", why, err)
	}
	info, err := box.Info(t.Context())
	if err != nil || info.Status != client.StatusRunning || len(info.Permissions) != 2 || info.Permissions[1].Type != client.File {
		t.Errorf("%+v, %v", info, err)
	}
	err = box.SetPolicy(t.Context(), client.Policy{Rules: []client.PermissionRule{{Pattern: "a", Permission: "rw"}}})
	if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), `"rw"`) {
		t.Errorf("an unknown permission: %v", err)
	}
}

func TestStreamsAreApartAndWhole(t *testing.T) {
	box, _ := linked(t, open(t), "full-access", nil)
	var out, complaints bytes.Buffer
	r, err := box.ExecStream(t.Context(), "cat; head -c 3000000 /dev/zero | tr '\\0' x; echo no >&2; exit 4", &out, &complaints, client.WithStdin(strings.NewReader("in\xff")))
	if err != nil || r.ExitCode != 4 || complaints.String() != "no\n" {
		t.Errorf("%+v, %v, %q", r, err, complaints.String())
	}
	if want := "in\xff" + strings.Repeat("x", 3000000); out.String() != want {
		t.Errorf("%d bytes of output", out.Len())
	}
}

func TestSessionKeepsItsState(t *testing.T) {
	box, _ := linked(t, open(t), "full-access", nil)
	x, err := box.Session(t.Context(), client.WithEnv(map[string]string{"A": "1"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"mkdir d; cd d; b=2", `echo "$A$b ${PWD##*/}"`} {
		r, err := x.Exec(t.Context(), command)
		if err != nil {
			t.Fatal(err)
		}
		if want := "12 d\n"; strings.HasPrefix(command, "echo") && string(r.Stdout) != want {
			t.Errorf("%q, want %q", r.Stdout, want)
		}
	}
	if _, err := x.Exec(t.Context(), "sleep 60", client.WithTimeout(50*time.Millisecond)); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("a command that takes too long: %v", err)
	}
	var out bytes.Buffer
	if _, err := x.ExecStream(t.Context(), "pwd", &out, nil); err != nil || !strings.HasSuffix(out.String(), "/d\n") {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := x.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := x.Exec(t.Context(), "true"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a closed session: %v", err)
	}
}

func TestErrorsHaveTheirKinds(t *testing.T) {
	c := open(t)
	box, _ := linked(t, c, "full-access", nil)
	ctx := t.Context()
	if _, err := box.Run(ctx, "sleep 60", client.WithTimeout(50*time.Millisecond)); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("time-out: %v", err)
	}
	if err := box.Start(ctx); !errors.Is(err, client.ErrPrecondition) || errors.Is(err, client.ErrNotRunning) {
		t.Errorf("start twice: %v", err)
	}
	if err := box.Stop(ctx); err != nil {
		t.Error(err)
	}
	_, err := box.Run(ctx, "true")
	if told := (*client.Error)(nil); !errors.Is(err, client.ErrNotRunning) || !errors.Is(err, client.ErrPrecondition) || !errors.As(err, &told) || told.Status != client.StatusStopped {
		t.Errorf("not running: %v", err)
	}
	if _, err := c.Sandbox(ctx, "sb_0000000000000000"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := c.CreateSandbox(ctx, "cb_0000000000000000", client.WithPreset("agent-save")); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "agent-safe") {
		t.Errorf("unknown preset: %v", err)
	}
	stranger, err := client.New(ctx, client.WithToken("afs_"+strings.Repeat("0", 64)))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := stranger.Codebase(ctx, "cb_0000000000000000"); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("wrong token: %v", err)
	}
	nobody, err := client.New(ctx, client.WithEndpoint("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	if _, err := nobody.Codebase(ctx, "cb_0000000000000000"); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("dead server: %v", err)
	}
}

func TestAClientThatIsClosed(t *testing.T) {
	box, _ := linked(t, open(t), "full-access", nil)
	c := open(t)
	found, err := c.Sandbox(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	want := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, client.ErrPrecondition) || errors.Is(err, client.ErrInternal) || !strings.HasSuffix(err.Error(), ": the client is closed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = found.Info(t.Context())
	want("Info", err)
	_, err = found.Run(t.Context(), "true")
	want("Run", err)
	_, err = found.Session(t.Context())
	want("Session", err)
	want("Destroy", found.Destroy(t.Context()))
	want("UploadFile", c.UploadFile(t.Context(), "cb_0000000000000000", "f", strings.NewReader("x"), 0))
	for _, err := range c.Sandboxes(t.Context()) {
		want("Sandboxes", err)
	}
}

func TestFailureIsAnErrorWhereItIsAskedFor(t *testing.T) {
	box, _ := linked(t, open(t), "full-access", nil)
	if err := run(t, box, "true").Err(); err != nil {
		t.Error(err)
	}
	err := run(t, box, "echo first >&2; printf 'last \\033 line\\n\\n' >&2; exit 3").Err()
	if !errors.Is(err, client.ErrCommand) || err.Error() != `run: exit code 3: last \x1b line` {
		t.Error(err)
	}
	if err := run(t, box, "exit 4").Err(); !errors.Is(err, client.ErrCommand) || err.Error() != "run: exit code 4" {
		t.Error(err)
	}
}

func TestCommandEndsWithItsContext(t *testing.T) {
	box, _ := linked(t, open(t), "full-access", nil)
	ctx, cancel := context.WithCancel(t.Context())
	started := writerFunc(func([]byte) { cancel() })
	_, err := box.ExecStream(ctx, "echo started; sleep 600", started, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled command: %v", err)
	}
	for event, err := range box.Audit(t.Context(), client.WithFollow(), client.WithEvents("command_executed")) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(event.Record), "sleep 600") {
			t.Errorf("%s", event.Record)
		}
		break
	}
	stats, err := box.Stats(t.Context())
	if err != nil || stats.Execs != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// writerFunc is called with each piece of output.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

func TestUploadedCodebase(t *testing.T) {
	c, ctx := open(t), t.Context()
	base, err := c.CreateCodebase(ctx, "up", "me")
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("0123456789"), 30000)
	if err := c.UploadFile(ctx, base.ID, "dir/big", bytes.NewReader(content), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.UploadFile(ctx, base.ID, "../out", bytes.NewReader(content), 0); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a path that leads out: %v", err)
	}
	box, err := c.CreateSandbox(ctx, base.ID, client.WithPolicy(client.Policy{}.Write("*")))
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, box, "wc -c <dir/big; test -x dir/big; echo made >made"); string(r.Stdout) != "300000\n" || !r.Success() {
		t.Errorf("%d %q", r.ExitCode, r.Stdout)
	}
	var got bytes.Buffer
	if err := c.DownloadFile(ctx, base.ID, "made", &got); err != nil || got.String() != "made\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
	files, err := c.ListFiles(ctx, base.ID, "", true)
	var names []string
	for _, f := range files {
		names = append(names, f.Path)
	}
	if diff := cmp.Diff([]string{"dir", "dir/big", "made"}, names); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if err := c.DeleteCodebase(ctx, base.ID); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("delete what has a sandbox: %v", err)
	}
	n := 0
	for info, err := range c.Sandboxes(ctx, client.WithCodebaseID(base.ID)) {
		if n++; err != nil || info.ID != box.ID {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	if err := errors.Join(box.Destroy(ctx), c.DeleteCodebase(ctx, base.ID)); err != nil {
		t.Error(err)
	}
}

// TestHomeIsKept: it is there again after a stop and a start, and else new.
func TestHomeIsKept(t *testing.T) {
	c := open(t)
	base, err := c.LinkCodebase(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for home, want := range map[client.Home]string{client.HomeKeep: "f\n", client.HomePrivate: "", "": ""} {
		box, err := c.CreateSandbox(t.Context(), base.ID, client.WithHome(home))
		if err != nil {
			t.Fatal(err)
		}
		if info, err := box.Info(t.Context()); err != nil || (info.Home == client.HomeKeep) != (home == client.HomeKeep) {
			t.Errorf("home %q: %+v, %v", home, info, err)
		}
		run(t, box, "touch ~/f")
		if err := errors.Join(box.Stop(t.Context()), box.Start(t.Context())); err != nil {
			t.Error(err)
		}
		if r := run(t, box, "ls ~"); string(r.Stdout) != want {
			t.Errorf("home %q holds %q", home, r.Stdout)
		}
		if err := box.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.CreateSandbox(t.Context(), base.ID, client.WithHome("kept")); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if err := c.DeleteCodebase(t.Context(), base.ID); err != nil {
		t.Error(err)
	}
}

// TestUserIsWhomCommandsAre: whoever runs the server, 7 and 0 are but numbers inside.
func TestUserIsWhomCommandsAre(t *testing.T) {
	c := open(t)
	base, err := c.LinkCodebase(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []uint32{0, 7} {
		box, err := c.CreateSandbox(t.Context(), base.ID, client.WithPreset("read-only"), client.WithUser(uid))
		if err != nil {
			t.Fatal(err)
		}
		if r, want := run(t, box, "id -u; id -g"), fmt.Sprintf("%d\n%d\n", uid, uid); string(r.Stdout) != want {
			t.Errorf("user %d is %q", uid, r.Stdout)
		}
		if err := box.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.CreateSandbox(t.Context(), base.ID, client.WithUser(65534)); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a user that is nobody: %v, want ErrInvalid", err)
	}
	if err := c.DeleteCodebase(t.Context(), base.ID); err != nil {
		t.Error(err)
	}
}

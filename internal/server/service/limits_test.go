package service_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

func TestCreateSandboxRefusesWhatItCannotDo(t *testing.T) {
	w := newWorld(t, nil)
	cb := w.codebase(t.Context(), "me")
	for _, tt := range []struct {
		name string
		r    *sandboxv1.CreateSandboxRequest
		want codes.Code
	}{
		{"no codebase_id", &sandboxv1.CreateSandboxRequest{}, codes.InvalidArgument},
		{"an unknown codebase", &sandboxv1.CreateSandboxRequest{CodebaseId: "cb_0000000000000000"}, codes.NotFound},
		{"a malformed pattern", &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: []*sandboxv1.PermissionRule{{Pattern: "[a"}}}, codes.InvalidArgument},
		{"an unknown permission", &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: []*sandboxv1.PermissionRule{{Pattern: "a", Permission: 9}}}, codes.InvalidArgument},
		{"an unknown pattern type", &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: []*sandboxv1.PermissionRule{{Pattern: "a", Type: 9}}}, codes.InvalidArgument},
		{"an unknown runtime", &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Runtime: 9}, codes.InvalidArgument},
		{"a negative expiry", &sandboxv1.CreateSandboxRequest{CodebaseId: cb, ExpiresIn: durationpb.New(-1)}, codes.InvalidArgument},
		{"a negative limit", &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Resources: &sandboxv1.ResourceLimits{PidsLimit: -1}}, codes.InvalidArgument},
		{"a name kept for ids", &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Name: "sb_x"}, codes.InvalidArgument},
		{"an image without docker", &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Image: "debian"}, codes.InvalidArgument},
	} {
		_, err := w.sandboxes.CreateSandbox(t.Context(), tt.r)
		wantCode(t, tt.name, err, tt.want)
	}
	named := &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Name: "fix"}
	if _, err := w.sandboxes.CreateSandbox(t.Context(), named); err != nil {
		t.Fatal(err)
	}
	_, err := w.sandboxes.CreateSandbox(t.Context(), named)
	wantCode(t, "a name that is taken", err, codes.AlreadyExists)
	if all, err := w.home.List(); err != nil || len(all) != 1 {
		t.Errorf("%d sandboxes are there, %v, want the one", len(all), err)
	}
}

// wantLimit checks the limit that an error tells programs of.
func wantLimit(t *testing.T, err error, resource string, limit int) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == "agentfense" && info.Reason == "LIMIT_EXCEEDED" {
			if got := info.Metadata; got["resource"] != resource || got["limit"] != strconv.Itoa(limit) {
				t.Errorf("the limit is told as %v, want %d %s", got, limit, resource)
			}
			return
		}
	}
	t.Errorf("%v: tells no limit", err)
}

func TestAnOwnerHasOnlySoManySandboxes(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Sandbox.MaxPerUser = 1 })
	cb := w.codebase(t.Context(), "me")
	first, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb})
	wantCode(t, "the second", err, codes.ResourceExhausted)
	wantLimit(t, err, "sandboxes", 1)
	if _, err := w.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: first.Id}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb}); err != nil {
		t.Error(err)
	}
}

func TestAnOwnerHasOnlySoManyCodebases(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Limits.MaxCodebasesPerOwner = 2 })
	me := w.as("me", store.AllScopes)
	first := w.codebase(me, "me")
	if _, err := w.codebases.LinkCodebase(t.Context(), &sandboxv1.LinkCodebaseRequest{Name: "l", OwnerId: "me", Path: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	_, err := w.codebases.CreateCodebase(me, &sandboxv1.CreateCodebaseRequest{Name: "third"})
	wantCode(t, "the third", err, codes.ResourceExhausted)
	wantLimit(t, err, "codebases", 2)
	_, err = w.codebases.LinkCodebase(t.Context(), &sandboxv1.LinkCodebaseRequest{Name: "l", OwnerId: "me", Path: t.TempDir()})
	wantCode(t, "another link", err, codes.ResourceExhausted)
	if made, err := os.ReadDir(filepath.Join(w.home.Dir(), "codebases")); err != nil || len(made) != 3 { // with the lock
		t.Errorf("%d entries are there, %v: what was refused left something", len(made), err)
	}
	w.codebase(t.Context(), "other")
	if _, err := w.codebases.DeleteCodebase(me, &sandboxv1.DeleteCodebaseRequest{CodebaseId: first}); err != nil {
		t.Fatal(err)
	}
	w.codebase(me, "me")
}

// What an owner uploads to several codebases, and what sandboxes bring, counts
// together.
func TestAnOwnerUploadsOnlySoMuch(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Limits.MaxCodebaseBytesPerOwner, c.Limits.MaxCodebaseFilesPerOwner = 100, 10 })
	me := w.as("me", store.AllScopes)
	one, two := w.codebase(me, "me"), w.codebase(me, "me")
	if err := w.upload(me, one, "a", strings.Repeat("x", 60)); err != nil {
		t.Fatal(err)
	}
	large := w.upload(me, two, "b", strings.Repeat("x", 60))
	wantCode(t, "beyond the bytes", large, codes.ResourceExhausted)
	wantLimit(t, large, "bytes", 100)
	if err := w.upload(t.Context(), w.codebase(t.Context(), "other"), "b", strings.Repeat("x", 60)); err != nil {
		t.Errorf("another owner: %v", err)
	}
	sb := w.sandbox(me, two)
	if _, err := w.sandboxes.Exec(me, &sandboxv1.ExecRequest{SandboxId: sb, Command: "head -c 1000 /dev/zero > c"}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.codebases.GetCodebase(me, &sandboxv1.GetCodebaseRequest{CodebaseId: two}); err != nil || got.Size != 1000 {
		t.Errorf("what the sandbox brought: %v, %v", got, err)
	}
	wantCode(t, "beside it", w.upload(me, one, "d", "x"), codes.ResourceExhausted)
	if _, err := w.codebases.DeleteFile(me, &sandboxv1.DeleteFileRequest{CodebaseId: two, FilePath: "c"}); err != nil {
		t.Fatal(err)
	}
	if err := w.upload(me, one, "d", "x"); err != nil {
		t.Error(err)
	}
}

func TestTimeoutsBeyondTheMostAreRefused(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Runtime.MaxTimeout = c.Runtime.DefaultTimeout })
	sb := w.sandbox(t.Context(), w.codebase(t.Context(), "me"))
	_, err := w.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: sb, Command: "true", Timeout: durationpb.New(3600e9)})
	wantCode(t, "an hour", err, codes.InvalidArgument)
	if _, err := w.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: sb, Command: "true"}); err != nil {
		t.Error(err)
	}
}

func TestUploadsHaveLimits(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Limits.MaxFileBytes, c.Limits.MaxCodebaseFiles = 10, 2 })
	cb := w.codebase(t.Context(), "me")
	large := w.upload(t.Context(), cb, "f", "more than ten bytes")
	wantCode(t, "a large file", large, codes.ResourceExhausted)
	wantLimit(t, large, "bytes", 10)
	for _, name := range []string{"a", "b"} {
		if err := w.upload(t.Context(), cb, name, "x"); err != nil {
			t.Error(err)
		}
	}
	wantCode(t, "a third file", w.upload(t.Context(), cb, "c", "x"), codes.ResourceExhausted)
}

// Who asks for too many sandboxes leaves nothing behind by that.
func TestARefusedSandboxLeavesNothing(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Sandbox.MaxPerUser = 1 })
	cb := w.codebase(t.Context(), "me")
	if _, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb}); err != nil {
		t.Fatal(err)
	}
	logs := func() int {
		entries, err := os.ReadDir(filepath.Join(w.home.Dir(), "audit"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := logs()
	for range 3 {
		_, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb})
		wantCode(t, "one more", err, codes.ResourceExhausted)
	}
	if after := logs(); after != before {
		t.Errorf("%d files of logs, then %d", before, after)
	}
}

// A record is read whole, whenever any sandbox is made: it does not grow for ever.
func TestRulesHaveLimits(t *testing.T) {
	w := newWorld(t, nil)
	cb := w.codebase(t.Context(), "me")
	rules := func(first string, n int) []*sandboxv1.PermissionRule {
		list := []*sandboxv1.PermissionRule{{Pattern: first}}
		for range n {
			list = append(list, &sandboxv1.PermissionRule{Pattern: strings.Repeat("/x", 2000)})
		}
		return list
	}
	_, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: rules("a", 300)})
	wantCode(t, "more than a megabyte", err, codes.InvalidArgument)
	sb, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: rules("a", 200)})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; err == nil && n < 10; n++ {
		request := &sandboxv1.SetPolicyRequest{SandboxId: sb.Id, Permissions: rules(fmt.Sprint("a", n), 200)}
		_, err = w.sandboxes.SetPolicy(t.Context(), request)
	}
	wantCode(t, "one after another", err, codes.ResourceExhausted)
}

// An upload beyond the limits is over when it is known to be, not when its client
// says that it is.
func TestAnUploadBeyondTheLimitsEndsAtOnce(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Limits.MaxCodebaseBytes = 1000 })
	cb := w.codebase(t.Context(), "me")
	if err := w.upload(t.Context(), cb, "there", "something"); err != nil {
		t.Fatal(err)
	}
	for name, total := range map[string]int64{"of a size that nobody has told": 0, "larger than any": math.MaxInt64} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		up, err := w.codebases.UploadFiles(ctx)
		if err != nil {
			t.Fatal(err)
		}
		metadata := &sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: "f", TotalSize: total}
		_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: metadata}}) // the answer tells
		if total == 0 {
			_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: make([]byte, 2000)}})
		}
		wantCode(t, name, up.RecvMsg(&sandboxv1.UploadResult{}), codes.ResourceExhausted)
	}
}

func TestAConflictThatIsRefusedStaysInTheSandbox(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Sandbox.OnConflict = config.ConflictRefuse })
	cb := w.codebase(t.Context(), "me")
	if err := w.upload(t.Context(), cb, "f", "old"); err != nil {
		t.Fatal(err)
	}
	sb := w.sandbox(t.Context(), cb)
	stream, err := w.sandboxes.ExecStream(t.Context(), &sandboxv1.ExecRequest{
		SandboxId: sb, Command: "printf inside > f; printf other > g; echo ready; while [ ! -e go ]; do sleep 0.01; done",
	})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil {
		t.Fatal(m, err)
	}
	for _, name := range []string{"f", "go"} {
		if err := w.upload(t.Context(), cb, name, "outside"); err != nil {
			t.Fatal(err)
		}
	}
	var last *sandboxv1.ExecOutput
	for last.GetExitCode() == 0 && (last == nil || last.ExitCode == nil) {
		if last, err = stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if len(last.Conflicts) != 1 || last.Conflicts[0] != "f" {
		t.Errorf("conflicts %v, want f", last.Conflicts)
	}
	for name, want := range map[string]string{"f": "outside", "g": "other"} {
		if got, err := w.download(t.Context(), cb, name); got != want || err != nil {
			t.Errorf("the codebase has %s = %q, %v, want %q", name, got, err, want)
		}
	}
	r, err := w.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: sb, Command: "cat f"})
	if err != nil || r.Stdout != "inside" {
		t.Errorf("the sandbox has %v, %v, want its own", r, err)
	}
}

// A detached command counts for as long as it runs, though its call is over.
func TestCommandsOfAnOwnerAreBounded(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Limits.ExecsPerOwner = 1 })
	mine, hers := w.as("me", store.AllScopes), w.as("she", store.AllScopes)
	sb, other := w.sandbox(mine, w.codebase(mine, "me")), w.sandbox(hers, w.codebase(hers, "she"))
	run := func(ctx context.Context, id string) error {
		_, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: "true"})
		return err
	}
	for range 20 { // one after another they are as many as one likes
		if err := run(mine, sb); err != nil {
			t.Fatal(err)
		}
	}
	ctx, leave := context.WithCancel(mine)
	stream, err := w.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "sleep 1000", Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.ExecId == "" {
		t.Fatalf("began with %v, %v", m, err)
	}
	leave()
	err = run(mine, sb)
	wantCode(t, "a second command", err, codes.ResourceExhausted)
	wantLimit(t, err, "execs", 1)
	if text := status.Convert(err).Message(); !strings.Contains(text, "wait until one ends, or raise limits.execs_per_owner") {
		t.Errorf("the error does not say what to do: %s", text)
	}
	if err := run(hers, other); err != nil {
		t.Errorf("another owner's: %v", err)
	}
	if err := run(t.Context(), sb); err != nil {
		t.Errorf("the operator's: %v", err)
	}
	if _, err := w.sandboxes.StopSandbox(mine, &sandboxv1.StopSandboxRequest{SandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.sandboxes.StartSandbox(mine, &sandboxv1.StartSandboxRequest{SandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	for err = run(mine, sb); status.Code(err) == codes.ResourceExhausted; err = run(mine, sb) { // its end has a goroutine of its own
		runtime.Gosched()
	}
	if err != nil {
		t.Error(err)
	}
}

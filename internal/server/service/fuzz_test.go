package service_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/test/wire"
)

// proper fails the test unless err is nil or blames the request or the state of
// what it is about: an error of the server's own is none that input may cause.
func proper(t *testing.T, what string, err error) bool {
	t.Helper()
	switch code := status.Code(err); code {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists:
		return code == codes.OK
	default:
		t.Errorf("%s: %v", what, err)
		return false
	}
}

// seedPaths are paths of every kind that has ever led somewhere wrong.
var seedPaths = []string{
	"", "/", ".", "..", "../..", "a/../../b", "f", "/f", "d/g", "d//g/", "./f", "new/dir/x", "f/x", "out", "out/canary", "file", "loop", "loop/x", "up/x",
	"\x00", "a\x00", "a\nb", `\xff`, `\x5cxff`, `\x2e\x2e/x`, "%2e%2e/x", `..\x`, "...", "~", "\u202e", "é", strings.Repeat("n", 300), strings.Repeat("d/", 2100),
	".wh.f", ".wh..wh..opq", ".git/hooks/x", "*", "[", "{a,b}", "-rf", "staging", "../staging/x", "/proc/self/root/etc", "/dev/null",
}

// outside is what no call may change: a directory of the host, and another
// codebase.
type outside struct {
	dirs   []string
	before string
}

func (o *outside) state(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range o.dirs {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			all.WriteString(path + " " + info.Mode().String() + " " + info.ModTime().String() + "\n")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

func (o *outside) check(t *testing.T) {
	t.Helper()
	if now := o.state(t); now != o.before {
		t.Errorf("outside the codebase there was\n%s\nand is\n%s", o.before, now)
	}
}

// plant makes a codebase with links that lead out, and what they lead to.
func (w *world) plant(f *testing.F) (cb string, o *outside) {
	ctx := f.Context()
	host, other := f.TempDir(), w.codebase(ctx, "me")
	cb = w.codebase(ctx, "me")
	if err := errors.Join(
		os.WriteFile(filepath.Join(host, "canary"), []byte("alive"), 0o666),
		w.upload(ctx, other, "canary", "alive"), w.upload(ctx, cb, "f", "content"), w.upload(ctx, cb, "d/g", "more"),
	); err != nil {
		f.Fatal(err)
	}
	for name, target := range map[string]string{"out": host, "file": host + "/canary", "loop": "loop", "up": "../../" + other + "/files"} {
		if err := w.tree(ctx, &sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: name, SymlinkTarget: target}); err != nil {
			f.Fatal(err)
		}
	}
	o = &outside{dirs: []string{host, filepath.Join(w.home.Dir(), "codebases", other)}}
	o.before = o.state(f)
	return cb, o
}

// tree stores one thing by UploadTree.
func (w *world) tree(ctx context.Context, m *sandboxv1.UploadChunk_Metadata) error {
	up, err := w.codebases.UploadTree(ctx)
	if err != nil {
		return err
	}
	_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: m}}) // the answer tells
	_, err = up.CloseAndRecv()
	return err
}

func FuzzFilePaths(f *testing.F) {
	for _, path := range seedPaths {
		f.Add(path, "target", uint32(0o644))
		f.Add("link", path, uint32(0o7777))
	}
	w := newWorld(f, nil)
	cb, o := w.plant(f)
	ctx := f.Context()
	f.Fuzz(func(t *testing.T, path, target string, mode uint32) {
		if !utf8.ValidString(path) || !utf8.ValidString(target) {
			return // no string of a message
		}
		meta := func() *sandboxv1.UploadChunk_Metadata {
			return &sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: path, Mode: mode}
		}
		stored := false
		up, err := w.codebases.UploadFiles(ctx)
		if err == nil {
			_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: meta()}})
			_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: []byte("x")}})
			_, err = up.CloseAndRecv()
		}
		stored = proper(t, "UploadFiles", err)
		down, err := w.codebases.DownloadFile(ctx, &sandboxv1.DownloadFileRequest{CodebaseId: cb, FilePath: path})
		if err == nil {
			var chunk *sandboxv1.FileChunk
			if chunk, err = down.Recv(); errors.Is(err, io.EOF) {
				err = nil
			}
			if got := string(chunk.GetData()); stored && got != "x" || got == "alive" {
				t.Errorf("DownloadFile of %q is %q, %v", path, got, err)
			}
		}
		proper(t, "DownloadFile", err)
		_, err = w.codebases.ListFiles(ctx, &sandboxv1.ListFilesRequest{CodebaseId: cb, Path: path, Recursive: mode%2 == 0})
		proper(t, "ListFiles", err)
		if path != "d" && path != "f" {
			_, err = w.codebases.DeleteFile(ctx, &sandboxv1.DeleteFileRequest{CodebaseId: cb, FilePath: path})
			if gone := proper(t, "DeleteFile", err); stored && !gone {
				t.Errorf("DeleteFile of %q, which was stored: %v", path, err)
			}
		}
		directory, link := meta(), meta()
		directory.Directory, link.SymlinkTarget = true, target
		proper(t, "UploadTree of a directory", w.tree(ctx, directory))
		proper(t, "UploadTree of a link", w.tree(ctx, link))
		o.check(t)
		// The planted links were perhaps replaced by what they are called.
		_, err = w.codebases.DeleteFile(ctx, &sandboxv1.DeleteFileRequest{CodebaseId: cb, FilePath: path})
		proper(t, "DeleteFile", err)
		o.check(t)
	})
}

func FuzzSandboxPaths(f *testing.F) {
	for _, path := range seedPaths {
		f.Add(path)
	}
	w := newWorld(f, func(c *config.Config) { c.Sandbox.Sync = config.SyncManual })
	cb, o := w.plant(f)
	ctx := f.Context()
	sb := w.sandbox(ctx, cb)
	f.Fuzz(func(t *testing.T, path string) {
		if !utf8.ValidString(path) {
			return
		}
		made, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "echo changed >> changed; echo changed >> d/g"})
		if err != nil || made.ExitCode != 0 {
			t.Fatal(made, err)
		}
		inside, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "pwd; cat canary", Workdir: path})
		if proper(t, "Exec", err) && strings.Contains(inside.Stdout, "alive") {
			t.Errorf("in %q: %q", path, inside.Stdout)
		}
		_, err = w.sandboxes.ExplainPolicy(ctx, &sandboxv1.ExplainPolicyRequest{SandboxId: sb, Path: path})
		proper(t, "ExplainPolicy", err)
		_, err = w.sandboxes.ListView(ctx, &sandboxv1.ListViewRequest{SandboxId: sb, Path: path})
		proper(t, "ListView", err)
		view, err := w.sandboxes.ReadView(ctx, &sandboxv1.ReadViewRequest{SandboxId: sb, Path: path})
		if err == nil {
			var piece *sandboxv1.ReadViewResponse
			if piece, err = view.Recv(); errors.Is(err, io.EOF) {
				err = nil
			}
			if string(piece.GetData()) == "alive" {
				t.Errorf("ReadView of %q leads out", path)
			}
		}
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "leads out") {
			proper(t, "ReadView", err)
		}
		_, err = w.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: sb, Paths: []string{path}})
		proper(t, "Diff", err)
		_, err = w.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: sb, PageSize: 1, PageToken: path})
		proper(t, "Diff", err)
		_, err = w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb, Paths: []string{"changed", path}})
		proper(t, "Apply", err)
		_, err = w.sandboxes.Discard(ctx, &sandboxv1.DiscardRequest{SandboxId: sb, Paths: []string{path}})
		proper(t, "Discard", err)
		o.check(t)
	})
}

func FuzzRules(f *testing.F) {
	for _, pattern := range append(seedPaths, "**", "**/*", "**/.env*", "a{b,c{d,e}}", "{", "}", "[!a]", "[a-", "***", "/**/..", `\`, `a\*`, "[]", "[[:alpha:]]", "{,}") {
		f.Add(pattern, int32(0), int32(3), int32(0), "d/g")
		f.Add(pattern, int32(1), int32(4), int32(1<<31-1), pattern)
	}
	w := newWorld(f, nil)
	cb, o := w.plant(f)
	ctx := f.Context()
	live := w.sandbox(ctx, cb)
	f.Fuzz(func(t *testing.T, pattern string, kind, permission, priority int32, path string) {
		if !utf8.ValidString(pattern) || !utf8.ValidString(path) {
			return
		}
		rules := []*sandboxv1.PermissionRule{{
			Pattern: pattern, Type: sandboxv1.PatternType(kind), Permission: sandboxv1.Permission(permission), Priority: priority,
		}}
		made, err := w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: rules})
		taken := proper(t, "CreateSandbox", err)
		if taken {
			_, err = w.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: made.Id})
			proper(t, "DestroySandbox", err)
		}
		set, err := w.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: live, Permissions: rules})
		if status.Code(err) == codes.ResourceExhausted {
			return // after some ten thousand others it has room for no more
		}
		if proper(t, "SetPolicy", err) != taken {
			t.Errorf("CreateSandbox takes %q: %v; SetPolicy: %v", pattern, taken, err)
		}
		if taken && set.Permissions[0].Pattern != pattern {
			t.Errorf("%q became %q", pattern, set.Permissions[0].Pattern)
		}
		explained, err := w.sandboxes.ExplainPolicy(ctx, &sandboxv1.ExplainPolicyRequest{SandboxId: live, Path: path})
		if proper(t, "ExplainPolicy", err) && explained.Rule != nil && taken && explained.Rule.Pattern != pattern {
			t.Errorf("%q is decided by %q", path, explained.Rule.Pattern)
		}
		if ls, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: live, Command: "cat out/canary file up/canary"}); proper(t, "Exec", err) && strings.Contains(ls.Stdout, "alive") {
			t.Errorf("with %q a link leads out: %q", pattern, ls.Stdout)
		}
		o.check(t)
	})
}

// Every call, whatever its id is.
func FuzzIDs(f *testing.F) {
	for _, id := range append(seedPaths, "cb_0123456789abcdef", "sb_0123456789abcdef", "sess_0123456789abcdef", "cb_0123456789ABCDEF", "' OR 1=1") {
		f.Add(id)
	}
	w := newWorld(f, nil)
	cb, o := w.plant(f)
	sb := w.sandbox(f.Context(), cb)
	client := wire.GRPC{Conn: w.conn}
	ctx := f.Context()
	f.Fuzz(func(t *testing.T, id string) {
		if !utf8.ValidString(id) || id == cb || id == sb {
			return
		}
		for _, call := range wire.Calls() {
			request, has := withID(call, id)
			if !has {
				continue
			}
			_, err := client.One(ctx, call, request)
			code := status.Code(err)
			if id == "" && code != codes.InvalidArgument || id != "" && code != codes.NotFound {
				t.Errorf("%s of %q: %v", call.Name(), id, err)
			}
		}
		o.check(t)
	})
}

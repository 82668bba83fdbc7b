package service_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/service"
	"github.com/agentfense/agentfense/internal/server/store"
)

// tree makes directories, files ("name=content") and links ("name->target") below a new directory,
// whose path has no symbolic links.
func tree(t *testing.T, entries ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name, target, isLink := strings.Cut(entry, "->")
		name, content, isFile := strings.Cut(name, "=")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(target, path)
		case isFile:
			err = os.WriteFile(path, []byte(content), 0o644)
		default:
			err = os.Mkdir(path, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mountOf asks for one mount.
func mountOf(codebase string, m *sandboxv1.Mount) *sandboxv1.CreateSandboxRequest {
	return &sandboxv1.CreateSandboxRequest{CodebaseId: codebase, Permissions: everything, Mounts: []*sandboxv1.Mount{m}}
}

func TestMountsAreBelowRootsAlone(t *testing.T) {
	dir := tree(t, "data/in/f=x", "data/near->in", "data/far->../outside", "data/abs->/etc", "data/loop->loop", "data/file=x", "outside/f=x", "alices/f=x", "tokens/t=x", "database", "datax")
	outer := config.MountRoot{Path: dir + "/data"}
	w := newWorld(t, func(c *config.Config) {
		c.Mounts.Roots = []config.MountRoot{outer, {Path: dir + "/alices", Owners: []string{"alice"}, Writable: true}, {Path: dir + "/tokens"}}
		c.Auth.TokenFile = dir + "/tokens/t"
	})
	me := w.as("me", store.AllScopes)
	cb, hers := w.codebase(me, "me"), w.codebase(t.Context(), "alice")
	refused := map[string]struct {
		m    *sandboxv1.Mount
		code codes.Code
		text string
	}{
		"outside":                 {&sandboxv1.Mount{Source: dir + "/outside"}, codes.PermissionDenied, "mounts.roots"},
		"absent and outside":      {&sandboxv1.Mount{Source: dir + "/nothing"}, codes.PermissionDenied, "mounts.roots"},
		"a name that begins so":   {&sandboxv1.Mount{Source: dir + "/datax"}, codes.PermissionDenied, "mounts.roots"},
		"the directory above":     {&sandboxv1.Mount{Source: dir}, codes.PermissionDenied, "mounts.roots"},
		"up again":                {&sandboxv1.Mount{Source: dir + "/data/../outside"}, codes.InvalidArgument, `".." is not allowed`},
		"a link out":              {&sandboxv1.Mount{Source: dir + "/data/far"}, codes.PermissionDenied, "leads out"},
		"through a link out":      {&sandboxv1.Mount{Source: dir + "/data/far/f"}, codes.PermissionDenied, "leads out"},
		"an absolute link":        {&sandboxv1.Mount{Source: dir + "/data/abs"}, codes.PermissionDenied, "leads out"},
		"a link to itself":        {&sandboxv1.Mount{Source: dir + "/data/loop"}, codes.InvalidArgument, "symbolic link"},
		"a file":                  {&sandboxv1.Mount{Source: dir + "/data/file"}, codes.InvalidArgument, "directories only"},
		"absent":                  {&sandboxv1.Mount{Source: dir + "/data/nothing"}, codes.NotFound, "no such file"},
		"of another owner":        {&sandboxv1.Mount{Source: dir + "/alices"}, codes.PermissionDenied, "the owner me mount"},
		"writable":                {&sandboxv1.Mount{Source: dir + "/data/in", Mode: "cow"}, codes.PermissionDenied, "writable in mounts.roots"},
		"a preset that writes":    {&sandboxv1.Mount{Source: dir + "/data/in", Mode: "development"}, codes.PermissionDenied, "writable in mounts.roots"},
		"rules that write":        {&sandboxv1.Mount{Source: dir + "/data/in", Rules: everything}, codes.PermissionDenied, "writable in mounts.roots"},
		"with the token":          {&sandboxv1.Mount{Source: dir + "/tokens"}, codes.PermissionDenied, "the server's own files"},
		"a relative source":       {&sandboxv1.Mount{Source: "data/in"}, codes.InvalidArgument, "mounts[0].source"},
		"no source":               {&sandboxv1.Mount{}, codes.InvalidArgument, "mounts[0].source"},
		"a relative place":        {&sandboxv1.Mount{Source: dir + "/data/in", Place: "in"}, codes.InvalidArgument, "mounts[0].place"},
		"over the workspace":      {&sandboxv1.Mount{Source: dir + "/data/in", Place: "/workspace/in"}, codes.InvalidArgument, "overlap"},
		"over the kernel's files": {&sandboxv1.Mount{Source: dir + "/data/in", Place: "/proc/x"}, codes.InvalidArgument, "reserved"},
		"a bind mount":            {&sandboxv1.Mount{Source: dir + "/data/in", Mode: "bind"}, codes.InvalidArgument, "works only on this host"},
		"an unknown mode":         {&sandboxv1.Mount{Source: dir + "/data/in", Mode: "rw"}, codes.InvalidArgument, "mounts[0].mode"},
		"a mode beside rules":     {&sandboxv1.Mount{Source: dir + "/data/in", Mode: "cow", Rules: everything}, codes.InvalidArgument, "exclude each other"},
		"rules that are absent":   {&sandboxv1.Mount{Source: dir + "/data/in", Mode: "policy"}, codes.InvalidArgument, "mounts[0].rules"},
		"a malformed rule":        {&sandboxv1.Mount{Source: dir + "/data/in", Rules: []*sandboxv1.PermissionRule{{Pattern: "["}}}, codes.InvalidArgument, "rules[0].pattern"},
		"a malformed name":        {&sandboxv1.Mount{Source: dir + "/data/in", Name: "In"}, codes.InvalidArgument, "mounts[0].name"},
		"the workspace's name":    {&sandboxv1.Mount{Source: dir + "/data/in", Name: "workspace"}, codes.InvalidArgument, "the workspace's"},
	}
	for what, tt := range refused {
		_, err := w.sandboxes.CreateSandbox(me, mountOf(cb, tt.m))
		if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, want %s with %q", what, err, tt.code, tt.text)
		}
	}
	many := mountOf(cb, nil)
	many.Mounts = make([]*sandboxv1.Mount, 17)
	for i := range many.Mounts {
		many.Mounts[i] = &sandboxv1.Mount{Source: dir + "/data/in", Place: "/mnt/" + string(rune('a'+i))}
	}
	_, err := w.sandboxes.CreateSandbox(me, many)
	wantCode(t, "17 mounts", err, codes.InvalidArgument)
	many.Mounts = many.Mounts[:2]
	many.Mounts[0].Name, many.Mounts[1].Name = "a", "a"
	_, err = w.sandboxes.CreateSandbox(me, many)
	wantCode(t, "two mounts of one name", err, codes.InvalidArgument)
	if page, err := w.sandboxes.ListSandboxes(me, &sandboxv1.ListSandboxesRequest{}); err != nil || len(page.Sandboxes) > 0 {
		t.Errorf("after that there are %v, %v", page, err)
	}

	made, err := w.sandboxes.CreateSandbox(me, mountOf(cb, &sandboxv1.Mount{Source: dir + "/data/near/", Place: "/mnt/x"}))
	if err != nil || len(made.Mounts) != 1 || made.Mounts[0].Source != dir+"/data/in" || made.Mounts[0].Name != "x" || made.Mounts[0].Mode != "ro" {
		t.Errorf("a link to a directory below the root: %v, %v", made, err)
	}
	if _, err := w.sandboxes.CreateSandbox(t.Context(), mountOf(hers, &sandboxv1.Mount{Source: dir + "/alices", Mode: "cow"})); err != nil {
		t.Errorf("for alice: %v", err)
	}
	blind, err := w.sandboxes.GetSandbox(w.as("me", store.ScopeExec|store.ScopeRead), &sandboxv1.GetSandboxRequest{SandboxId: made.GetId()})
	if err != nil || len(blind.Mounts) != 1 {
		t.Errorf("with the scope read: %v, %v", blind, err)
	}
	if blind, err = w.sandboxes.StartSandbox(w.as("me", store.ScopeExec), &sandboxv1.StartSandboxRequest{SandboxId: made.GetId()}); err != nil || len(blind.Mounts) != 0 {
		t.Errorf("with the scope exec alone: %v, %v", blind.GetMounts(), err)
	}
}

// What takes the place of a mount's directory is not shown: neither another directory, nor what is
// behind a symbolic link, whoever notices it.
func TestAMountIsCheckedAtEachStart(t *testing.T) {
	dir := tree(t, "data/in/sub/f=x", "outside/sub/f=secret")
	var c *config.Config
	w := newWorld(t, func(of *config.Config) {
		c = of
		c.Mounts.Roots = []config.MountRoot{{Path: dir + "/data", Writable: true}}
	})
	ctx := t.Context()
	sb := func(mode string) string {
		made, err := w.sandboxes.CreateSandbox(ctx, mountOf(w.codebase(ctx, "me"), &sandboxv1.Mount{Source: dir + "/data/in/sub", Place: "/mnt/sub", Mode: mode}))
		if err != nil {
			t.Fatal(err)
		}
		return made.Id
	}
	readable, writable := sb("ro"), sb("cow")
	start := func(id string) error {
		_, err := w.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: id})
		return err
	}
	stop := func(id string) {
		t.Helper()
		if _, err := w.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{readable, writable} {
		if err := start(id); err != nil {
			t.Fatal(err)
		}
		stop(id)
	}
	if err := os.Rename(dir+"/data/in", dir+"/data/was"); err != nil {
		t.Fatal(err)
	}
	for what, target := range map[string]string{"out of the root": "../outside", "absolute": dir + "/outside", "below the root": "was"} {
		if err := os.Symlink(target, dir+"/data/in"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{readable, writable} {
			if err := start(id); err == nil {
				t.Errorf("a link %s in the place of a directory: it starts", what)
				stop(id)
			}
		}
		if err := os.Remove(dir + "/data/in"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(dir+"/data/was", dir+"/data/in"); err != nil {
		t.Fatal(err)
	}
	c.Mounts.Roots[0].Writable = false
	if err := start(readable); err != nil {
		t.Error(err)
	} else {
		stop(readable)
	}
	wantCode(t, "start of a mount that may no longer be written", start(writable), codes.PermissionDenied)
	c.Mounts.Roots[0].Owners = []string{"alice"}
	wantCode(t, "start after the owner was removed", start(readable), codes.PermissionDenied)
	c.Mounts.Roots = nil
	wantCode(t, "start without a root", start(readable), codes.PermissionDenied)
	_, err := w.sandboxes.StartSandbox(w.as("me", store.ScopeExec), &sandboxv1.StartSandboxRequest{SandboxId: readable})
	if status.Code(err) != codes.PermissionDenied || strings.Contains(err.Error(), dir) {
		t.Errorf("for a caller who may not know the mounts: %v", err)
	}
}

func TestRootsHaveNoLinks(t *testing.T) {
	dir := tree(t, "data/f=x", "link->data")
	absent, err := service.CheckRoots([]config.MountRoot{{Path: dir + "/data"}, {Path: dir + "/nothing"}})
	if err != nil || len(absent) != 1 {
		t.Errorf("absent %q, %v", absent, err)
	}
	for _, path := range []string{dir + "/link", dir + "/data/f"} {
		if _, err := service.CheckRoots([]config.MountRoot{{Path: path}}); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}

// Errors about a mount do not tell its source to a caller who may not know the mounts.
func TestErrorsHideTheSourcesOfMounts(t *testing.T) {
	dir := tree(t, "data/in/f=x")
	w := newWorld(t, func(c *config.Config) { c.Mounts.Roots = []config.MountRoot{{Path: dir + "/data", Writable: true}} })
	made, err := w.sandboxes.CreateSandbox(t.Context(), mountOf(w.codebase(t.Context(), "me"), &sandboxv1.Mount{Source: dir + "/data/in", Place: "/mnt/in", Mode: "cow"}))
	if err != nil {
		t.Fatal(err)
	}
	starts, applies := w.as("me", store.ScopeExec), w.as("me", store.ScopeApply)
	wantHidden := func(what string) {
		t.Helper()
		_, start := w.sandboxes.StartSandbox(starts, &sandboxv1.StartSandboxRequest{SandboxId: made.Id})
		_, apply := w.sandboxes.Apply(applies, &sandboxv1.ApplyRequest{SandboxId: made.Id, Mount: "in"})
		for call, err := range map[string]error{"StartSandbox": start, "Apply": apply} {
			if err == nil || status.Code(err) == codes.Internal || strings.Contains(err.Error(), dir) {
				t.Errorf("%s, %s: %v, want an error without the path", what, call, err)
			}
		}
		if _, err := w.sandboxes.Discard(applies, &sandboxv1.DiscardRequest{SandboxId: made.Id, Mount: "in"}); err != nil && strings.Contains(err.Error(), dir) {
			t.Errorf("%s, Discard: %v", what, err)
		}
	}
	if err := os.Rename(dir+"/data/in", dir+"/data/was"); err != nil {
		t.Fatal(err)
	}
	wantHidden("absent")
	if err := os.Mkdir(dir+"/data/in", 0o755); err != nil {
		t.Fatal(err)
	}
	wantHidden("another directory")
}

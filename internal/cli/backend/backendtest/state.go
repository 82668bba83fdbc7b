package backendtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func testUnknown(t *testing.T, s Suite) {
	b := s.Backend
	for method, call := range map[string]func(ctx context.Context, name string) error{
		"Sandbox": func(ctx context.Context, name string) error { _, err := b.Sandbox(ctx, name); return err },
		"Inspect": func(ctx context.Context, name string) error { _, err := b.Inspect(ctx, name); return err },
		"Stop": func(ctx context.Context, name string) error {
			_, err := b.Stop(ctx, name, backend.StopOptions{})
			return err
		},
		"Remove": func(ctx context.Context, name string) error {
			_, err := b.Remove(ctx, name, backend.RemoveEmpty)
			return err
		},
		"Reopen": func(ctx context.Context, name string) error {
			_, err := b.Reopen(ctx, name, backend.Reopening{})
			return err
		},
		"Policy": func(ctx context.Context, name string) error { _, err := b.Policy(ctx, name); return err },
		"SetPolicy": func(ctx context.Context, name string) error {
			return b.SetPolicy(ctx, name, writable)
		},
		"ChangeHosts": func(ctx context.Context, name string) error {
			_, err := b.ChangeHosts(ctx, name, hostlist.Change{Grant: []string{"example.com:443"}})
			return err
		},
		"Explain": func(ctx context.Context, name string) error {
			_, err := b.Explain(ctx, name, nil, []vpath.Path{"/a"})
			return err
		},
		"Logs": func(ctx context.Context, name string) error {
			return b.Logs(ctx, name, false, func(outlog.Record) error { return nil })
		},
		"Audit": func(ctx context.Context, name string) error {
			return b.Audit(ctx, name, 0, false, func(audit.Record) error { return nil })
		},
		"Changes": func(ctx context.Context, name string) error {
			c, err := b.Changes(ctx, name, "", nil)
			if err == nil {
				_, err = c.Review(ctx, nil, backend.Names)
			}
			return err
		},
		"View": func(ctx context.Context, name string) error { _, err := b.View(ctx, name, "", nil); return err },
	} {
		for _, name := range []string{"nobody", "sb_0123456789abcdef"} {
			wantKind(t, method+" of "+name, call(t.Context(), name), errdefs.NotFound)
		}
	}
	if _, err := b.Remove(t.Context(), "nobody", backend.RemoveForced); err != nil {
		t.Errorf("Remove by force of a sandbox that does not exist: %v", err)
	}
}

func testMade(t *testing.T, s Suite) {
	sb, _ := s.create(t, "made")
	for _, name := range []string{"made", string(sb.Record.ID)} {
		if found, err := s.Backend.Sandbox(t.Context(), name); err != nil || found.Record.ID != sb.Record.ID {
			t.Errorf("Sandbox(%s) = %s, %v, want %s", name, found.Record.ID, err, sb.Record.ID)
		}
	}
	all, err := s.Backend.Sandboxes(t.Context(), true)
	i := slices.IndexFunc(all, func(f backend.Sandbox) bool { return f.Record.ID == sb.Record.ID })
	switch {
	case err != nil || i < 0:
		t.Fatalf("Sandboxes = %v, %v, want made among them", all, err)
	case all[i].Status == record.Running:
		t.Errorf("the status of a sandbox that was never started is %s", all[i].Status)
	case all[i].Usage == nil || all[i].Usage.Changes != 0:
		t.Errorf("the usage of an empty sandbox is %+v", all[i].Usage)
	}
	_, err = s.Backend.Create(t.Context(), backend.NewSandbox{Name: "made", Source: s.source(t), Rules: writable, Net: "none"})
	wantKind(t, "Create with a name that is taken", err, errdefs.Exists)
	_, err = s.Backend.Create(t.Context(), backend.NewSandbox{Name: "../made", Source: s.source(t), Rules: writable, Net: "none"})
	wantKind(t, "Create with a malformed name", err, errdefs.Invalid)
	if gone, err := s.Backend.Remove(t.Context(), "made", backend.RemoveEmpty); err != nil || gone.ID != sb.Record.ID {
		t.Errorf("Remove = %+v, %v", gone, err)
	}
	_, err = s.Backend.Sandbox(t.Context(), "made")
	wantKind(t, "Sandbox of one that is removed", err, errdefs.NotFound)
}

// source is a directory without files.
func (s Suite) source(t *testing.T) record.Source {
	t.Helper()
	source, err := s.Home.ResolveSource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func testRunning(t *testing.T, s Suite) {
	sb, _ := s.create(t, "running")
	live := s.enter(t, sb)
	now, err := s.Backend.Inspect(t.Context(), sb.Ref())
	if err != nil || now.Status != record.Running {
		t.Errorf("Inspect = %s, %v, want running", now.Status, err)
	}
	_, err = s.Backend.Remove(t.Context(), sb.Ref(), backend.RemoveEmpty)
	wantKind(t, "Remove of a running sandbox", err, errdefs.Precondition)
	_, err = s.Backend.Enter(t.Context(), now.Sandbox, backend.EnterOptions{Exclusive: true})
	wantKind(t, "Enter of a running sandbox for oneself", err, errdefs.Precondition)
	left, err := s.Backend.RemoveUnused(t.Context(), sb)
	if err != nil || !left.InUse && !s.IsServer { // a server ends one in which no command runs
		t.Errorf("RemoveUnused of a running sandbox = %+v, %v", left, err)
	}
	if err := live.Leave(); err != nil {
		t.Error(err)
	}
	if s.IsServer {
		return
	}
	for range 2 { // stopping again is no error
		if _, err := s.Backend.Stop(t.Context(), sb.Ref(), backend.StopOptions{}); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
}

func testPending(t *testing.T, s Suite) {
	sb, _ := s.create(t, "pending")
	s.change(t, sb, "echo new >new")
	_, err := s.Backend.Remove(t.Context(), sb.Ref(), backend.RemoveEmpty)
	wantKind(t, "Remove of a sandbox with changes", err, errdefs.Precondition)
	if left, err := s.Backend.RemoveUnused(t.Context(), sb); err != nil || !left.HasChanges {
		t.Errorf("RemoveUnused of a sandbox with changes = %+v, %v", left, err)
	}
	empty, _ := s.create(t, "empty")
	for _, force := range []bool{false, true} {
		list, err := s.Backend.Unused(t.Context(), backend.UnusedOptions{Force: force})
		if err != nil {
			t.Fatal(err)
		}
		has := func(name string) int {
			return slices.IndexFunc(list, func(u backend.Unused) bool { return u.Name == name })
		}
		if (has("pending") >= 0) != force || has("empty") < 0 {
			t.Errorf("Unused by force %t = %+v", force, list)
			continue
		}
		if force {
			if holds := list[has("pending")].Holds; holds.Changes != 1 {
				t.Errorf("pending holds %+v", holds)
			}
			if err := list[has("empty")].Remove(t.Context()); err != nil {
				t.Errorf("Remove of an unused sandbox: %v", err)
			}
		}
	}
	_, err = s.Backend.Sandbox(t.Context(), empty.Ref())
	wantKind(t, "Sandbox of a removed one", err, errdefs.NotFound)
	if list, err := s.Backend.Unused(t.Context(), backend.UnusedOptions{Older: time.Hour, Force: true}); err != nil || len(list) > 0 {
		t.Errorf("Unused of an hour = %+v, %v", list, err)
	}
}

func testPolicy(t *testing.T, s Suite) {
	sb, _ := s.create(t, "policy")
	live := s.enter(t, sb)
	if exit, _, _ := sh(t, live, "cat old", ""); exit.Code != 0 {
		t.Errorf("reading old: exit code %d", exit.Code)
	}
	next := writable
	next.Rules = append(slices.Clone(writable.Rules), policy.Rule{Pattern: "/old", Permission: policy.None, Priority: 20, Source: "test"})
	if err := s.Backend.SetPolicy(t.Context(), sb.Ref(), next); err != nil {
		t.Fatal(err)
	}
	if exit, _, stderr := sh(t, live, "cat old", ""); exit.Code == 0 {
		t.Errorf("reading old, which is hidden now: exit code 0: %s", stderr)
	}
	if err := live.Leave(); err != nil {
		t.Error(err)
	}
	x, err := s.Backend.Explain(t.Context(), sb.Ref(), nil, []vpath.Path{"/old", "/kept"})
	if err != nil || len(x.Paths) != 2 || x.Paths[0].Decision.Permission != policy.None || x.Paths[1].Decision.Permission != policy.Write {
		t.Errorf("Explain = %+v, %v", x.Paths, err)
	}
	next.Rules = []policy.Rule{{Pattern: "[", Permission: policy.Read, Source: "test"}}
	wantKind(t, "SetPolicy with a malformed pattern", s.Backend.SetPolicy(t.Context(), sb.Ref(), next), errdefs.Invalid)
	now, err := s.Backend.Policy(t.Context(), sb.Ref())
	if err != nil || len(now.Record.Rules) != 3 || now.IsDir("old") || now.IsDir("nothing/there") {
		t.Errorf("Policy = %d rules, %v, want 3, and no directory", len(now.Record.Rules), err)
	}
}

func testAudit(t *testing.T, s Suite) {
	sb, _ := s.create(t, "audit")
	s.change(t, sb, "cat secret || true")
	var last uint64
	kinds := map[audit.Kind]int{}
	read := func(after uint64) int {
		n := 0
		err := s.Backend.Audit(t.Context(), sb.Ref(), after, false, func(r audit.Record) error {
			n++
			last = max(last, r.Seq)
			kinds[r.Event.Kind()]++
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if n := read(0); n == 0 || kinds[audit.SandboxCreated{}.Kind()] != 1 || kinds[audit.CommandExecuted{}.Kind()] != 1 {
		t.Errorf("%d records: %v", n, kinds)
	}
	if n := read(last); n != 0 {
		t.Errorf("%d records behind the last", n)
	}
	stop := errors.New("stop")
	if err := s.Backend.Audit(t.Context(), sb.Ref(), 0, false, func(audit.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Audit = %v, want the error of do", err)
	}
	err := s.Backend.Logs(t.Context(), sb.Ref(), false, func(outlog.Record) error { return stop })
	if err != nil {
		t.Errorf("Logs of a sandbox without detached commands: %v", err)
	}
}

func testLocalOnly(t *testing.T, s Suite) {
	sb, _ := s.create(t, "only")
	b, hour := s.Backend, time.Hour
	for flag, call := range map[string]func(ctx context.Context) error{
		"timeout": func(ctx context.Context) error {
			_, err := b.Stop(ctx, sb.Ref(), backend.StopOptions{Timeout: &hour})
			return err
		},
		"force": func(ctx context.Context) error {
			_, err := b.Stop(ctx, sb.Ref(), backend.StopOptions{Force: true})
			return err
		},
		"verify": func(ctx context.Context) error { _, err := b.VerifyAudit(ctx, sb.Ref(), nil); return err },
		"prune":  func(ctx context.Context) error { _, err := b.PruneAudit(ctx, hour); return err },
		"write": func(ctx context.Context) error {
			_, err := b.Explain(ctx, sb.Ref(), []policy.Rule{{Pattern: "/a", Permission: policy.Write, Source: "--write"}}, []vpath.Path{"/a"})
			return err
		},
		"to": func(ctx context.Context) error {
			_, err := s.changes(t, sb).Apply(ctx, backend.ApplyOptions{To: t.TempDir()})
			return err
		},
		"toolchains": func(context.Context) error { return b.Check(backend.NewSandbox{Net: "none", Toolchains: true}) },
	} {
		err := call(t.Context())
		only, refused := errors.AsType[*backend.LocalOnlyError](err)
		switch {
		case refused != s.IsServer, !refused && err != nil:
			t.Errorf("--%s: %v", flag, err)
		case refused && (only.Flag != flag || !strings.Contains(err.Error(), "works only on this host")):
			t.Errorf("--%s: %v names the flag %s", flag, err, only.Flag)
		}
	}
	only, refused := errors.AsType[*backend.ServerOnlyError](b.Check(backend.NewSandbox{Net: "none", CodebaseID: "cb_0123456789abcdef"}))
	if refused == s.IsServer || refused && only.Flag != "codebase" {
		t.Errorf("--codebase: %v", only)
	}
}

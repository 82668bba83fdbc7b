package service_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

// keeps are rules of a mount: all can be written, and what is below state is kept, with one key of
// settings.json.
func keeps() []*sandboxv1.PermissionRule {
	return append(slices.Clone(everything),
		&sandboxv1.PermissionRule{Pattern: "/state/**", Permission: sandboxv1.Permission_PERMISSION_WRITE, Priority: 1, Keep: true},
		&sandboxv1.PermissionRule{Pattern: "/settings.json", Type: sandboxv1.PatternType_PATTERN_TYPE_FILE, Permission: sandboxv1.Permission_PERMISSION_WRITE, Priority: 1, Keep: true, KeepKeys: []string{"history"}},
	)
}

// keptPaths are the paths of a list, "MOUNT:PATH".
func keptPaths(list []*sandboxv1.KeptPath) []string {
	var paths []string
	for _, p := range list {
		paths = append(paths, p.Mount+":"+p.Path+strings.Join(append([]string{""}, p.Keys...), "#"))
	}
	return paths
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func TestAServerKeepsOnlyWhereItsConfigurationSaysSo(t *testing.T) {
	dir := tree(t, "keep/d/state/f=x", "review/d/state/f=x", "alices/d/f=x")
	w := newWorld(t, func(c *config.Config) {
		c.Mounts.Roots = []config.MountRoot{
			{Path: dir + "/keep", Writable: true, Keep: true},
			{Path: dir + "/review", Writable: true},
			{Path: dir + "/alices", Writable: true, Keep: true, Owners: []string{"alice"}},
		}
	})
	me := w.as("me", store.AllScopes)
	cb := w.codebase(me, "me")
	readable := []*sandboxv1.PermissionRule{{Pattern: "/**", Permission: sandboxv1.Permission_PERMISSION_READ, Keep: true}}
	asFlag := []*sandboxv1.PermissionRule{{Pattern: "/**", Permission: sandboxv1.Permission_PERMISSION_WRITE, Origin: sandboxv1.RuleOrigin_RULE_ORIGIN_FLAG, Keep: true}}
	for what, tt := range map[string]struct {
		r    *sandboxv1.CreateSandboxRequest
		code codes.Code
		text string
	}{
		"a root without keep":          {mountOf(cb, &sandboxv1.Mount{Source: dir + "/review/d", Rules: keeps()}), codes.PermissionDenied, "keep in mounts.roots"},
		"a root of another owner":      {mountOf(cb, &sandboxv1.Mount{Source: dir + "/alices/d", Rules: keeps()}), codes.PermissionDenied, "the owner me mount"},
		"the workspace":                {&sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: keeps()}, codes.InvalidArgument, "permissions[1].keep"},
		"a rule to read":               {mountOf(cb, &sandboxv1.Mount{Source: dir + "/keep/d", Rules: readable}), codes.InvalidArgument, "keep"},
		"a rule in the form of a flag": {mountOf(cb, &sandboxv1.Mount{Source: dir + "/keep/d", Rules: asFlag}), codes.InvalidArgument, "keep"},
	} {
		_, err := w.sandboxes.CreateSandbox(me, tt.r)
		if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, want %s with %q", what, err, tt.code, tt.text)
		}
	}
}

// The end of a command applies what rules with keep match, in mounts. What could act on the host
// waits, as does everything after a command of a caller without the scope apply.
func TestTheEndOfACommandKeepsTheStateInAMount(t *testing.T) {
	dir := tree(t, "data/home/state/f=old", "data/home/settings.json={\"history\": 1, \"hooks\": 1}\n", "data/home/other=old")
	var c *config.Config
	w := newWorld(t, func(of *config.Config) {
		c = of
		c.Mounts.Roots = []config.MountRoot{{Path: dir + "/data", Writable: true, Keep: true}}
	})
	me := w.as("me", store.AllScopes)
	linked, err := w.codebases.LinkCodebase(t.Context(), &sandboxv1.LinkCodebaseRequest{Name: "host", OwnerId: "me", Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	made, err := w.sandboxes.CreateSandbox(me, mountOf(linked.Id, &sandboxv1.Mount{Source: dir + "/data/home", Place: "/mnt/home", Rules: keeps()}))
	if err != nil {
		t.Fatal(err)
	}
	if rule := made.Mounts[0].Rules[2]; !rule.Keep || !slices.Equal(rule.KeepKeys, []string{"history"}) {
		t.Errorf("the answer has the rule %v", rule)
	}
	if _, err := w.sandboxes.StartSandbox(me, &sandboxv1.StartSandboxRequest{SandboxId: made.Id}); err != nil {
		t.Fatal(err)
	}
	home := dir + "/data/home/"
	r := w.exec(me, made.Id, `cd /mnt/home && echo new >state/f && echo one >state/new && echo x >state/run.sh && chmod +x state/run.sh &&
		ln -s /etc/passwd state/link && mkdir -p state/.git/hooks && echo x >state/.git/hooks/post-checkout && echo x >state/Makefile &&
		echo new >other && echo '{"history": 2, "hooks": 2}' >settings.json`)
	if got, want := keptPaths(r.GetKeep().GetKept()), []string{"home:settings.json#history", "home:state/f", "home:state/new"}; !slices.Equal(got, want) || r.Keep.KeptCount != 3 || r.Keep.Note != "" {
		t.Errorf("kept %q of %v, want %q", got, r.Keep, want)
	}
	waits := keptPaths(r.GetKeep().GetNotKept())
	for _, p := range []string{"state/run.sh", "state/link", "state/.git/hooks/post-checkout", "state/Makefile"} {
		if _, err := os.Lstat(home + p); err == nil || !slices.Contains(waits, "home:"+p) {
			t.Errorf("%s is on the host (%v) or is not said to wait: %q", p, err == nil, r.Keep.NotKept)
		}
	}
	for p, want := range map[string]string{"state/f": "new\n", "state/new": "one\n", "other": "old", "settings.json": "{\"history\": 2, \"hooks\": 1}\n"} {
		if got := content(t, home+p); got != want {
			t.Errorf("%s is %q, want %q", p, got, want)
		}
	}

	// A session keeps, too; a caller who may not know the policy learns no reasons.
	session, err := w.sandboxes.CreateSession(me, &sandboxv1.CreateSessionRequest{SandboxId: made.Id})
	if err != nil {
		t.Fatal(err)
	}
	said, err := w.sandboxes.SessionExec(w.as("me", store.ScopeExec|store.ScopeApply), &sandboxv1.SessionExecRequest{SessionId: session.Id, Command: "echo again >/mnt/home/state/f"})
	if err != nil || !slices.Equal(keptPaths(said.GetKeep().GetKept()), []string{"home:state/f"}) || content(t, home+"state/f") != "again\n" {
		t.Errorf("a session: %v, %v", said.GetKeep(), err)
	}
	for _, p := range said.GetKeep().GetNotKept() {
		if p.Reason != "it waits for a review" {
			t.Errorf("without the scopes read and manage: %q", p.Reason)
		}
	}

	// The configuration is asked again.
	c.Mounts.Roots[0].Keep = false
	r = w.exec(me, made.Id, "echo denied >/mnt/home/state/f")
	if c.Mounts.Roots[0].Keep = true; r.GetKeep().GetNote() == "" || r.Keep.KeptCount != 0 || content(t, home+"state/f") != "again\n" {
		t.Errorf("without keep in the configuration: %v", r.Keep)
	}

	// What a caller without the scope apply wrote is never applied by a command of another one.
	r = w.exec(w.as("me", store.ScopeExec), made.Id, "echo evil >/mnt/home/state/f")
	if !strings.Contains(r.GetKeep().GetNote(), "scope apply") || content(t, home+"state/f") != "again\n" {
		t.Errorf("without the scope apply: %v", r.Keep)
	}
	r = w.exec(me, made.Id, "true")
	if !strings.Contains(r.GetKeep().GetNote(), "scope apply") || content(t, home+"state/f") != "again\n" {
		t.Errorf("after a caller without the scope apply: %v", r.Keep)
	}
	if _, err := w.sandboxes.StopSandbox(me, &sandboxv1.StopSandboxRequest{SandboxId: made.Id}); err != nil || content(t, home+"state/f") != "again\n" {
		t.Errorf("a stop after it: %v, %q", err, content(t, home+"state/f"))
	}
}

// What cannot be applied is no error of the command, and a stop keeps what a killed server did not.
func TestWhatCannotBeKeptStaysInTheSandbox(t *testing.T) {
	dir := tree(t, "data/home/state/f=old")
	w := newWorld(t, func(c *config.Config) {
		c.Mounts.Roots = []config.MountRoot{{Path: dir + "/data", Writable: true, Keep: true}}
	})
	me := w.as("me", store.AllScopes)
	made, err := w.sandboxes.CreateSandbox(me, mountOf(w.codebase(me, "me"), &sandboxv1.Mount{Source: dir + "/data/home", Place: "/mnt/home", Rules: keeps()}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.sandboxes.StartSandbox(me, &sandboxv1.StartSandboxRequest{SandboxId: made.Id}); err != nil {
		t.Fatal(err)
	}
	r := w.exec(me, made.Id, "exec sleep 1000 >/dev/null 2>&1 & echo early >/mnt/home/state/f") // what a command leaves behind is no command
	if got := content(t, dir+"/data/home/state/f"); got != "early\n" {
		t.Errorf("beside a process that was left behind: %q, %v", got, r)
	}

	// While another command runs, nothing is kept: what it is writing may be incomplete.
	other := make(chan *sandboxv1.ExecResult)
	go func() {
		r, err := w.sandboxes.Exec(me, &sandboxv1.ExecRequest{SandboxId: made.Id, Command: "cd /mnt/home; touch runs; while [ ! -e go ]; do sleep 0.01; done"})
		if err != nil {
			t.Error(err)
		}
		other <- r
	}()
	r = w.exec(me, made.Id, "cd /mnt/home; while [ ! -e runs ]; do sleep 0.01; done; echo busy >state/f")
	if !strings.Contains(r.GetKeep().GetNote(), "other commands run") || content(t, dir+"/data/home/state/f") != "early\n" {
		t.Errorf("while another command runs: %v", r)
	}
	w.exec(me, made.Id, "touch /mnt/home/go")
	<-other
	if got := content(t, dir+"/data/home/state/f"); got != "busy\n" {
		t.Errorf("when the last command has ended: %q", got)
	}

	source := filepath.Join(dir, "data/home")
	if err := os.Rename(source, source+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	r = w.exec(me, made.Id, "echo late >/mnt/home/state/f")
	if r.GetKeep().GetNote() == "" || content(t, source+"/state/f") != "" {
		t.Errorf("another directory is at the path: %v", r)
	}
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(source+"-away", source); err != nil {
		t.Fatal(err)
	}
	if _, err := w.sandboxes.StopSandbox(me, &sandboxv1.StopSandboxRequest{SandboxId: made.Id}); err != nil {
		t.Fatal(err)
	}
	if got := content(t, source+"/state/f"); got != "late\n" {
		t.Errorf("after the stop: %q", got)
	}
	applied := 0
	log, err := w.sandboxes.Audit(me, &sandboxv1.AuditRequest{SandboxId: made.Id})
	for err == nil {
		var event *sandboxv1.AuditEvent
		if event, err = log.Recv(); err == nil && event.Event == "applied" && strings.Contains(event.Record, `"mount":"home"`) {
			applied++
		}
	}
	if !errors.Is(err, io.EOF) || applied != 3 {
		t.Errorf("the audit log has %d applied changes of the mount, want 3: %v", applied, err)
	}
}

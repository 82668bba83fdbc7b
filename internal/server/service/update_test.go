package service_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/server/store"
)

// A stopped sandbox gets other settings, and no client gets by it what it cannot create.
func TestUpdateSandbox(t *testing.T) {
	var configuration *config.Config
	w := newWorld(t, func(c *config.Config) {
		configuration = c
		c.Network.Publish, c.Network.Limits = true, "out=1G"
		c.Secrets = []config.Secret{
			{Name: "KEY", Stored: hostlist.Secret{Text: "KEY=cmd:echo the-value@api.example.com:443"}},
			{Name: "OTHERS", Stored: hostlist.Secret{Text: "OTHERS=cmd:echo the-value@api.example.com:443"}, Owners: []string{"alice"}},
		}
	})
	cb := w.codebase(t.Context(), "me")
	made, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{
		CodebaseId: cb, Permissions: everything, Env: map[string]string{"USED": "1"}, Resources: &sandboxv1.ResourceLimits{PidsLimit: 50, DiskInodes: 9},
	})
	if err != nil {
		t.Fatal(err)
	}
	update := func(r *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
		r.SandboxId = made.Id
		return w.sandboxes.UpdateSandbox(t.Context(), r)
	}
	got, err := update(&sandboxv1.UpdateSandboxRequest{
		Secrets: []string{"KEY"}, Publish: []string{"8080:3000"}, NetLimits: []string{"out=2G", "rate=1M/s"},
	})
	if err != nil || len(got.Secrets) != 1 || got.Publish[0] != "8080:3000" || !slices.Equal(got.NetLimits, []string{"out=1G", "rate=1M/s"}) || got.Resources.GetPidsLimit() != 50 {
		t.Errorf("updated: %v, %v", got, err)
	}
	got, err = update(&sandboxv1.UpdateSandboxRequest{
		Resources: &sandboxv1.ResourceLimits{MemoryBytes: 1 << 30}, Clear: []string{"net_limits", "publish"}, Scratch: []string{"nm"},
	})
	if err != nil || got.Resources.GetPidsLimit() != 0 || got.Resources.GetMemoryBytes() != 1<<30 || len(got.Publish) != 0 || !slices.Equal(got.NetLimits, []string{"out=1G"}) || len(got.Secrets) != 1 || len(got.Scratch) != 1 {
		t.Errorf("updated again: %v, %v", got, err)
	}

	for what, r := range map[string]*sandboxv1.UpdateSandboxRequest{
		"nothing": {}, "an unknown list": {Clear: []string{"mounts"}}, "given and cleared": {Publish: []string{"3000"}, Clear: []string{"publish"}},
		"a malformed limit": {NetLimits: []string{"out=much"}}, "a negative limit": {Resources: &sandboxv1.ResourceLimits{PidsLimit: -1}},
		"a malformed port": {Publish: []string{"80"}}, "a path out": {Scratch: []string{"../x"}},
		"a limit of the disk beside scratch": {Resources: &sandboxv1.ResourceLimits{DiskBytes: 1 << 20}},
	} {
		_, err := update(r)
		wantCode(t, what, err, codes.InvalidArgument)
	}
	_, err = update(&sandboxv1.UpdateSandboxRequest{Secrets: []string{"OTHERS"}})
	wantCode(t, "a secret of another owner", err, codes.NotFound)
	configuration.Secrets = append(configuration.Secrets, config.Secret{Name: "USED", Stored: hostlist.Secret{Text: "USED=cmd:echo the-value@api.example.com:443"}})
	_, err = update(&sandboxv1.UpdateSandboxRequest{Secrets: []string{"USED"}})
	wantCode(t, "the name of a variable", err, codes.InvalidArgument)
	configuration.Network.Publish = false
	_, err = update(&sandboxv1.UpdateSandboxRequest{Publish: []string{"3000"}})
	wantCode(t, "a port that no sandbox may publish", err, codes.PermissionDenied)
	_, err = w.sandboxes.UpdateSandbox(w.as("me", store.ScopeExec|store.ScopeRead|store.ScopeApply), &sandboxv1.UpdateSandboxRequest{SandboxId: made.Id, Clear: []string{"secrets"}})
	wantCode(t, "without the scope manage", err, codes.PermissionDenied)
	_, err = w.sandboxes.UpdateSandbox(w.as("bob", store.AllScopes), &sandboxv1.UpdateSandboxRequest{SandboxId: made.Id, Clear: []string{"secrets"}})
	wantCode(t, "another owner", err, codes.NotFound)
	now, err := w.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: made.Id})
	if err != nil || now.String() != got.String() {
		t.Errorf("after refusals: %v, %v, want %v", now, err, got)
	}

	_, err = w.sandboxes.UpdateSandbox(t.Context(), &sandboxv1.UpdateSandboxRequest{SandboxId: w.sandbox(t.Context(), cb), NetLimits: []string{"out=1M"}})
	wantCode(t, "a running one", err, codes.FailedPrecondition)
	if err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("a running one: %v", err)
	}
}

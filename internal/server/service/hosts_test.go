package service_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Only a server whose configuration allows it publishes ports, also at a later start.
func TestPortsArePublishedWhereTheConfigurationAllowsIt(t *testing.T) {
	var configuration *config.Config
	w := newWorld(t, func(c *config.Config) {
		configuration = c
		c.Network.Publish, c.Network.Allow = true, []string{"localhost:3000"}
	})
	cb := w.codebase(t.Context(), "me")
	create := func(r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
		r.CodebaseId, r.Permissions = cb, everything
		return w.sandboxes.CreateSandbox(t.Context(), r)
	}
	made, err := create(&sandboxv1.CreateSandboxRequest{Publish: []string{"3000", "8080:5000"}})
	if err != nil || strings.Join(made.Publish, " ") != "3000:3000 8080:5000" || !strings.HasPrefix(made.PublishAddress, "127.0.0.") {
		t.Errorf("%v, %v", made, err)
	}
	for what, ports := range map[string][]string{
		"an address": {"0.0.0.0:3000"}, "a low port inside": {"8080:80"}, "no number": {"http"}, "empty": {""}, "twice": {"8080:3000", "8080:4000"},
	} {
		_, err := create(&sandboxv1.CreateSandboxRequest{Publish: ports})
		wantCode(t, what, err, codes.InvalidArgument)
		if err == nil || !strings.Contains(err.Error(), "publish: ") {
			t.Errorf("%s: %v does not name the field", what, err)
		}
	}
	_, err = create(&sandboxv1.CreateSandboxRequest{Publish: []string{"3000"}, AllowNet: []string{"localhost:3000"}})
	wantCode(t, "the port of a host", err, codes.FailedPrecondition)
	blind, err := w.sandboxes.GetSandbox(w.as("me", store.ScopeExec), &sandboxv1.GetSandboxRequest{SandboxId: made.GetId()})
	if err == nil && (len(blind.Publish) != 0 || blind.PublishAddress != "") {
		t.Errorf("with the scope exec alone: %v", blind)
	}

	configuration.Network.Publish = false
	_, err = create(&sandboxv1.CreateSandboxRequest{Publish: []string{"3000"}})
	wantCode(t, "without network.publish", err, codes.PermissionDenied)
	_, err = w.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: made.GetId()})
	wantCode(t, "a start without network.publish", err, codes.PermissionDenied)
}

// A client tightens the limits of the configuration, and raises none of them.
func TestClientsOnlyTightenLimitsOfTheNetwork(t *testing.T) {
	w := newWorld(t, func(c *config.Config) {
		c.Network.Limits = "connections=50,out=1G"
		c.Runtime.Docker.NetworkMode = "bridge"
	})
	cb := w.codebase(t.Context(), "me")
	create := func(r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
		r.CodebaseId, r.Permissions = cb, everything
		return w.sandboxes.CreateSandbox(t.Context(), r)
	}
	var made *sandboxv1.Sandbox
	for asked, want := range map[string]string{
		"":                              "connections=50 out=1G",
		"in=1G out=2G connections=1000": "connections=50 out=1G in=1G",
		"out=1024K,connections=5":       "connections=5 out=1M",
	} {
		var err error
		made, err = create(&sandboxv1.CreateSandboxRequest{NetLimits: strings.Fields(asked)})
		if got := strings.Join(made.GetNetLimits(), " "); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", asked, got, err, want)
		}
	}
	for what, limits := range map[string][]string{
		"unknown": {"upload=1M"}, "malformed": {"out=much"}, "empty": {""}, "twice": {"out=1M", "out=2M"}, "negative": {"out=-1"},
	} {
		_, err := create(&sandboxv1.CreateSandboxRequest{NetLimits: limits})
		wantCode(t, what, err, codes.InvalidArgument)
		if err == nil || !strings.Contains(err.Error(), "net_limits: ") {
			t.Errorf("%s: %v does not name the field", what, err)
		}
	}
	_, err := create(&sandboxv1.CreateSandboxRequest{NetLimits: []string{"out=1M"}, Runtime: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER})
	wantCode(t, "limits of docker's network", err, codes.InvalidArgument)
	blind, err := w.sandboxes.StartSandbox(w.as("me", store.ScopeExec), &sandboxv1.StartSandboxRequest{SandboxId: made.GetId()})
	if err != nil || len(blind.NetLimits) != 0 {
		t.Errorf("with the scope exec alone: %v, %v", blind.GetNetLimits(), err)
	}
}

package service_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Who has a token of an owner names what the operator allows, and learns nothing
// of what else there is.
func TestAllowedRuntimesAndImages(t *testing.T) {
	const (
		none   = sandboxv1.RuntimeType_RUNTIME_TYPE_UNSPECIFIED
		bwrap  = sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP
		docker = sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER
	)
	w := newWorld(t, func(c *config.Config) {
		c.Runtime.Type = config.Docker
		c.Runtime.Docker.DefaultImage, c.Runtime.Docker.Images = "standard", []string{"python:*"}
	})
	me := w.as("me", store.AllScopes)
	everybodys := w.as("", store.AllScopes)
	cb := w.codebase(me, "me")
	for _, tt := range []struct {
		name    string
		runtime sandboxv1.RuntimeType
		image   string
		want    codes.Code
	}{
		{"the default image", none, "", codes.OK},
		{"the default image by name", docker, "docker.io/library/standard:latest", codes.OK},
		{"one that is listed", docker, "python:3", codes.OK},
		{"another", docker, "secret:1", codes.PermissionDenied},
		{"an ID", none, "sha256:" + strings.Repeat("a", 64), codes.PermissionDenied},
		{"a short ID", none, "abcdef012345", codes.PermissionDenied},
		{"a digest of a listed name", none, "python@sha256:" + strings.Repeat("a", 64), codes.PermissionDenied},
		{"another runtime", bwrap, "", codes.PermissionDenied},
	} {
		for _, caller := range []context.Context{me, everybodys} {
			_, err := w.sandboxes.CreateSandbox(caller, &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Runtime: tt.runtime, Image: tt.image})
			wantCode(t, tt.name, err, tt.want)
			if strings.Contains(status.Convert(err).Message(), "python:*") {
				t.Errorf("%s: the list is told: %v", tt.name, err)
			}
		}
	}
	for _, r := range []*sandboxv1.CreateSandboxRequest{{Image: "secret:1"}, {Runtime: bwrap}} {
		r.CodebaseId = cb
		if _, err := w.sandboxes.CreateSandbox(t.Context(), r); err != nil {
			t.Errorf("the operator: %v", err)
		}
	}
}

func TestTheRuntimeIsTheOneAskedForOrTheConfigured(t *testing.T) {
	const (
		none   = sandboxv1.RuntimeType_RUNTIME_TYPE_UNSPECIFIED
		bwrap  = sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP
		docker = sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER
	)
	w := newWorld(t, func(c *config.Config) {
		c.Runtime.Type = config.Docker
		c.Runtime.Docker.DefaultImage, c.Runtime.Docker.NetworkMode = "standard", config.NetworkBridge
	})
	cb := w.codebase(t.Context(), "me")
	for _, tt := range []struct {
		name       string
		runtime    sandboxv1.RuntimeType
		image      string
		want       sandboxv1.RuntimeType
		wantImage  string
		wantNet    string
		wantRefuse bool
	}{
		{name: "the configured one", runtime: none, want: docker, wantImage: "standard", wantNet: "bridge"},
		{name: "the configured one with an image", runtime: none, image: "own:1", want: docker, wantImage: "own:1", wantNet: "bridge"},
		{name: "docker", runtime: docker, want: docker, wantImage: "standard", wantNet: "bridge"},
		{name: "bwrap has docker's network never", runtime: bwrap, want: bwrap, wantNet: "none"},
		{name: "bwrap has no images", runtime: bwrap, image: "own:1", wantRefuse: true},
		{name: "an image's name has an end", runtime: docker, image: strings.Repeat("a", 5000), wantRefuse: true},
		{name: "an image's name leads nowhere else in the daemon's API", runtime: docker, image: "../containers/other", wantRefuse: true},
		{name: "nor by a detour", runtime: docker, image: "own/../../containers/other", wantRefuse: true},
		{name: "an image's name is one line", runtime: docker, image: "a\nb", wantRefuse: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Runtime: tt.runtime, Image: tt.image})
			if tt.wantRefuse {
				wantCode(t, tt.name, err, codes.InvalidArgument)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sb, err := w.home.Open(got.Id)
			if err != nil {
				t.Fatal(err)
			}
			if got.Runtime != tt.want || got.Image != tt.wantImage || sb.Record().Net != tt.wantNet {
				t.Errorf("%s %q, network %q, want %s %q %q", got.Runtime, got.Image, sb.Record().Net, tt.want, tt.wantImage, tt.wantNet)
			}
		})
	}
}

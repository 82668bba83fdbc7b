package config_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/config"
)

func TestAllowedImages(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	digest := "@sha256:" + strings.Repeat("d", 64)
	d := config.DockerRuntime{DefaultImage: "debian:stable-slim", Images: []string{
		"python:*", "alpine", "ghcr.io/me/box-*:1.*", "localhost:5000/own:2", "pinned" + digest, "sha256:" + id, "team/*", "cafe",
	}}
	for _, tt := range []struct {
		name, image string
		want        bool
	}{
		{"the default image", "debian:stable-slim", true},
		{"the default image in full", "docker.io/library/debian:stable-slim", true},
		{"by the registry's older name", "index.docker.io/library/debian:stable-slim", true},
		{"another tag of it", "debian:latest", false},
		{"no tag of it", "debian", false},
		{"a tag that a pattern covers", "python:3.13", true},
		{"no tag is latest", "python", true},
		{"in full", "docker.io/library/python:3.13", true},
		{"another registry's of that name", "evil.example/library/python:3.13", false},
		{"a registry told apart by its case", "Docker.io/library/python:3.13", false},
		{"another user's of that name", "evil/python:3.13", false},
		{"a name that only begins so", "python2:1", false},
		{"a digest beside an allowed tag", "python:3.13" + digest, false},
		{"a digest of an allowed name", "python" + digest, false},
		{"the digest that is named", "pinned" + digest, true},
		{"with a tag, which does not count", "docker.io/library/pinned:1" + digest, true},
		{"its tag without the digest", "pinned:latest", false},
		{"another digest", "pinned@sha256:" + strings.Repeat("e", 64), false},
		{"latest", "alpine:latest", true},
		{"a pattern in name and tag", "ghcr.io/me/box-2:1.4", true},
		{"a tag beyond the pattern", "ghcr.io/me/box-2:2", false},
		{"a star covers no slash", "ghcr.io/me/box-2/x:1.4", false},
		{"a registry with a port", "localhost:5000/own:2", true},
		{"the port alone is no tag", "localhost:5000/own", false},
		{"a name below", "team/tool", true},
		{"an ID that is named", "sha256:" + id, true},
		{"without its prefix", id, true},
		{"another ID", "sha256:" + strings.Repeat("1", 64), false},
		{"a short ID, also of one that is named", id[:12], false},
		{"a short ID with a prefix", "sha256:" + id[:12], false},
		{"a name of hexadecimal digits that is written out", "cafe", true},
		{"in full it is no ID", "docker.io/library/cafe", true},
		{"a pattern is no image", "python:*", false},
		{"a pattern that is not written out", "python:3.*", false},
		{"capitals", "Python:3", false},
		{"nothing", "", false},
		{"a space", "python:3 ", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := d.Allows(tt.image); got != tt.want {
				t.Errorf("Allows(%q) = %t, want %t", tt.image, got, tt.want)
			}
		})
	}
	everything := config.DockerRuntime{DefaultImage: "debian", Images: []string{"*", "*:*"}}
	for _, image := range []string{"abc", "0123456789ab", id, "sha256:" + id, "sha256:0123", "x/y", "ghcr.io/x", "x:1@"} {
		if everything.Allows(image) {
			t.Errorf("a pattern of every library image covers %q", image)
		}
	}
}

func TestAllowedRuntimes(t *testing.T) {
	r := config.Runtime{Type: config.Bwrap}
	if !r.Permits(config.Bwrap) || r.Permits(config.Docker) {
		t.Error("without a list it is the configured type alone")
	}
	r.Allowed = []config.RuntimeType{config.Bwrap, config.Docker}
	if !r.Permits(config.Docker) {
		t.Error("docker is in the list")
	}
}

func TestListsAreReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		"runtime: {allowed: [bwrap, mock]}":       `"mock" would run`,
		"runtime: {allowed: [bwrap, dockr]}":      `did you mean "docker"?`,
		"runtime: {allowed: [docker]}":            "it must contain bwrap, the value of runtime.type",
		"runtime: {allowed: docker}":              "want a list",
		"runtime: {docker: {images: python}}":     "want a list",
		"runtime: {docker: {images: [[a]]}}":      "is text, not a list",
		"runtime: {docker: {images: [A/B/:c]}}":   "want an image",
		"runtime: {docker: {images: ['a b']}}":    "want an image",
		"runtime: {docker: {images: ['']}}":       "want an image",
		"runtime: {docker: {images: ['a@b']}}":    "want an image",
		"runtime: {type: [bwrap]}":                "is text, not a list",
		"runtime: {docker: {default_image: [a]}}": "is text, not a list",
	} {
		_, err := config.Load(write(t, text), nil)
		if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	c, err := config.Load("", []string{"AGENTFENSE_RUNTIME_ALLOWED=bwrap,docker", "AGENTFENSE_RUNTIME_DOCKER_IMAGES=python:*,alpine"})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Runtime.Permits(config.Docker) || !c.Runtime.Docker.Allows("python:3") || !c.Runtime.Docker.Allows("alpine") {
		t.Errorf("of the environment: %+v", c.Runtime)
	}
	if _, err := config.Load("", []string{"AGENTFENSE_RUNTIME_DOCKER_IMAGES=a,,b"}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("an empty item: %v", err)
	}
}

func TestIsImage(t *testing.T) {
	for image, want := range map[string]bool{
		"debian": true, "debian:12": true, "localhost:5000/a/b:c": true, "ghcr.io/x/y@sha256:" + strings.Repeat("a", 64): true,
		"sha256:" + strings.Repeat("a", 64): true, "0123abc": true,
		"": false, "no such image": false, "debian:*": false, "Debian": false, "debian:": false, "../containers/x": false, "a?b": false, "a/../b": false, "/a": false,
	} {
		if got := config.IsImage(image); got != want {
			t.Errorf("IsImage(%q) = %t, want %t", image, got, want)
		}
	}
}

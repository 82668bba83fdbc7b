package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// as returns the server as the holder of a new token with an owner sees it.
func (s *server) as(box *harness.Sandbox, owner string) *server {
	s.t.Helper()
	r := box.Agentfense("token", "create", "--owner", owner, "--scope", "read,exec,manage,apply", "--name", owner)
	if r.Code != 0 {
		s.t.Fatalf("token create: %s", r.Stderr)
	}
	served := *s.Server
	served.Token = strings.TrimSpace(r.Stdout)
	return &server{&served, s.t, s.home}
}

// must asks and returns the field of the answer, which must be a success.
func (s *server) must(method, path, body, field string) string {
	s.t.Helper()
	status, text := s.ask(method, path, body)
	if status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	var answer map[string]any
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		s.t.Fatal(err)
	}
	got, _ := answer[field].(string)
	return got
}

// sandboxOf asks for a sandbox of a codebase that runs an image.
func (s *server) sandboxOf(cb, image string) (status int, text string) {
	s.t.Helper()
	return s.ask(http.MethodPost, "/sandboxes", fmt.Sprintf(`{"codebase_id": %q, "image": %q}`, cb, image))
}

// A client names the images that the operator allows, by whatever name it calls
// them.
func TestOnlyAllowedImages(t *testing.T) {
	testenv.Docker(t)
	host := testenv.DockerDaemon(t)
	const private = "agentfense-private:1"
	made := dockerCommand(t, host, "create", testenv.DockerImage, "true")
	dockerCommand(t, host, "commit", "--change", "LABEL private=yes", made, private)
	dockerCommand(t, host, "rm", made)
	id := dockerCommand(t, host, "image", "inspect", "--format", "{{.Id}}", private)
	t.Setenv("AGENTFENSE_RUNTIME_TYPE", "docker")
	t.Setenv("AGENTFENSE_RUNTIME_DOCKER_HOST", host)
	t.Setenv("AGENTFENSE_RUNTIME_DOCKER_DEFAULT_IMAGE", testenv.DockerImage)
	box := harness.New(t, binary, nil)

	t.Setenv("AGENTFENSE_RUNTIME_DOCKER_IMAGES", "agentfense-private:*")
	s := serve(t, box)
	mallory := s.as(box, "mallory")
	cb := mallory.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id")
	older := mallory.must(http.MethodPost, "/sandboxes", fmt.Sprintf(`{"codebase_id": %q, "image": %q}`, cb, private), "id")
	s.end()

	t.Setenv("AGENTFENSE_RUNTIME_DOCKER_IMAGES", "")
	s = serve(t, box)
	mallory.Server.URL = s.URL
	digits := strings.TrimPrefix(id, "sha256:")
	for _, image := range []string{
		private, "docker.io/library/" + private, "index.docker.io/library/" + private, "library/" + private,
		id, digits, digits[:12], "sha256:" + digits[:12], private + "@" + id, testenv.DockerImage + "@" + id,
		"absent:1",
	} {
		status, text := mallory.sandboxOf(cb, image)
		if status != http.StatusForbidden || !strings.Contains(text, "runtime.docker.images") {
			t.Errorf("%s: %d %s", image, status, text)
		}
	}
	if status, text := mallory.sandboxOf(cb, "agentfense-private:*"); status != http.StatusBadRequest || !strings.Contains(text, "malformed") {
		t.Errorf("a pattern is no image's name: %d %s", status, text)
	}
	if status, text := mallory.ask(http.MethodPost, "/sandboxes", fmt.Sprintf(`{"codebase_id": %q, "runtime": "RUNTIME_TYPE_BWRAP"}`, cb)); status != http.StatusForbidden {
		t.Errorf("another runtime: %d %s", status, text)
	}
	for name, who := range map[string]*server{"the operator": s, "who has it already": mallory} {
		sandbox := older
		if who == s {
			sandbox = s.must(http.MethodPost, "/sandboxes", fmt.Sprintf(`{"codebase_id": %q, "image": %q}`, cb, id), "id")
		}
		who.must(http.MethodPost, "/sandboxes/"+sandbox+"/start", "", "id")
		if out := who.must(http.MethodPost, "/sandboxes/"+sandbox+"/exec", `{"command": "echo runs"}`, "stdout"); out != "runs\n" {
			t.Errorf("%s: %q", name, out)
		}
		who.must(http.MethodDelete, "/sandboxes/"+sandbox, "", "id")
	}
	if status, text := mallory.sandboxOf(cb, "docker.io/library/"+testenv.DockerImage); status != http.StatusOK {
		t.Errorf("the default image in full: %d %s", status, text)
	}
}

package docs_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/sandbox/config"
)

// requests is the document whose commands are requests, see server_test.go.
const requests = "docs/rest.md"

// shellRuns sees to it that a block for a shell is one that a test types.
func shellRuns(t *testing.T, b block) {
	if steps := session([]block{b}); len(steps) == 0 && b.document != requests {
		t.Errorf("%s: no test types this", b)
	}
}

// cellRuns sees to it that a notebook's cell is where those are that a test runs.
func cellRuns(t *testing.T, b block) {
	if b.document != "docs/integrations.md" {
		t.Errorf("%s: no test runs this", b)
	}
}

// checkYAML loads a policy as `policy check` does, a profile as `profile check`
// does, and a configuration as `serve` does.
func checkYAML(t *testing.T, b block) {
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(b.text), &keys); err != nil {
		t.Errorf("%s: %v", b, err)
		return
	}
	path := filepath.Join(t.TempDir(), "example.yaml")
	if err := os.WriteFile(path, []byte(b.text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, is := keys["version"]; is {
		kind := "policy"
		if keys["command"] != nil || keys["extends"] != nil {
			kind = "profile"
		}
		cmd := exec.Command(binary, kind, "check", path)
		cmd.Dir = t.TempDir()
		cmd.Env = append(ordinary(os.Environ()), "AGENTFENSE_HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", b, err, out)
		}
	} else if _, err := config.Load(path, nil); err != nil {
		t.Errorf("%s: neither a policy (it has no version) nor a server's configuration: %v", b, err)
	}
}

func checkJSON(t *testing.T, b block) {
	decoder := json.NewDecoder(strings.NewReader(b.text))
	for n := 0; ; n++ {
		var value any
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) && n > 0 {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", b, err)
			return
		}
	}
}

// goRuns builds a whole program as a package of this module, and runs it. A
// program with a file's name is built and run by a command of the session; the
// blocks of docs/go.md are examples of package client.
func goRuns(t *testing.T, b block) {
	if b.file != "" || b.document == "docs/go.md" {
		return
	}
	w := newWorld(t, b.document)
	file, place, program := filepath.Join(t.TempDir(), "main.go"), "test/docs/example", filepath.Join(t.TempDir(), "example")
	absolute, err := filepath.Abs(filepath.Join(root, place, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{absolute: file}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{file: []byte(b.text), file + ".json": overlay} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := w.command("go", "build", "-trimpath", "-overlay="+file+".json", "-o", program, "./"+place)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", b, err, out)
	}
	if out, err := w.command(program).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", b, err, out)
	}
}

// server.json is what programs read to find a server: the document has the keys
// of the real one.
func TestWhereaboutsAreAsDocumented(t *testing.T) {
	const document = "docs/server.md"
	s := newStage(t)
	keys := func(text string) []string {
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		var all []string
		for key := range object {
			all = append(all, key)
		}
		slices.Sort(all)
		return all
	}
	real, err := os.ReadFile(filepath.Join(s.home, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, b := range blocksOf(t, document) {
		if b.language == "json" && strings.Contains(b.text, `"grpc"`) {
			found = true
			if got, want := keys(b.text), keys(string(real)); !slices.Equal(got, want) {
				t.Errorf("%s: keys %q, the server writes %q", b, got, want)
			}
		}
	}
	if !found {
		t.Errorf("%s does not show server.json", document)
	}
}

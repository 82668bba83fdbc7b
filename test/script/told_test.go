package script_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/wire"
)

// noREST are the calls that REST cannot make, and why.
var noREST = map[string]string{
	"UploadTree":  "a request of HTTP has one body",
	"Attach":      "a body cannot wait for what comes out",
	"ReadChanges": "its answer is headers and contents in turn",
}

// TestEveryCallHasAStory finds, for every call of the API, a line of a story
// that makes it and succeeds, over gRPC and over REST.
func TestEveryCallHasAStory(t *testing.T) {
	told := toldCalls(t)
	for _, call := range wire.Calls() {
		name := string(call.Name())
		if !told["grpc "+name] {
			t.Errorf("no story makes %s over gRPC", name)
		}
		routes := wire.Routes(call)
		if _, none := noREST[name]; none != (len(routes) == 0) {
			t.Errorf("%s has the routes %v", name, routes)
		}
		for _, r := range routes {
			if !told[r.Verb+" "+r.Template] {
				t.Errorf("no story makes %s over REST: %s %s", name, r.Verb, r.Template)
			}
		}
	}
}

// toldCalls are the calls and routes that the stories use with success.
func toldCalls(t *testing.T) map[string]bool {
	t.Helper()
	stories, err := filepath.Glob("testdata/serve/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, story := range stories {
		text, err := os.ReadFile(story)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(text), "\n-- ")
		for line := range strings.Lines(script) {
			words := strings.Fields(line)
			if len(words) > 3 && words[1] == "wire" {
				words = words[3:]
			}
			switch {
			case len(words) > 2 && words[0] == "grpc" && words[1] == "OK":
				told["grpc "+words[2]] = true
			case len(words) > 3 && words[0] == "rest" && words[1] == "200":
				for _, call := range wire.Calls() {
					for _, r := range wire.Routes(call) {
						if r.Matches(words[2], strings.Trim(words[3], "'")) {
							told[r.Verb+" "+r.Template] = true
						}
					}
				}
			}
		}
	}
	return told
}

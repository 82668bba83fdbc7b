package service_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// withID is a request of a call that has an id and all that is needed beside it,
// or false for one that needs no id.
func withID(call protoreflect.MethodDescriptor, id string) (request string, has bool) {
	fields := map[string]any{
		"command": "true", "filePath": "x", "path": "x", "permission": "PERMISSION_READ", "askId": "1", "snapshot": "s1", "names": []string{"fuzzed"}, "clear": []string{"secrets"}, "metadata": map[string]any{"codebaseId": id, "filePath": "x"},
		"start":      map[string]any{"sandboxId": id, "argv": []string{"true"}},
		"codebaseId": id, "sandboxId": id, "sessionId": id, "fromSandboxId": id,
	}
	given := map[string]any{}
	for name, value := range fields {
		if call.Input().Fields().ByJSONName(name) != nil {
			given[name] = value
			switch name {
			case "metadata", "start", "codebaseId", "sandboxId", "sessionId":
				has = true
			}
		}
	}
	switch call.Name() {
	case "ListTransactions": // it takes one of two ids
		delete(given, "codebaseId")
	case "LockPaths", "UnlockPaths":
		given["paths"] = []string{"x"}
	case "PostMessage":
		given["text"] = "x"
	case "ApplyCommits":
		given["toBranch"], given["gitUser"] = "x", map[string]any{"name": "x", "email": "x@example.com"}
	}
	if call.Name() == "ListSandboxes" { // there the id narrows a list
		has = false
	}
	text, err := json.Marshal(given)
	if err != nil {
		panic(err)
	}
	return string(text), has
}

// The other words of requests: names, labels, variables, tokens of pages.
func FuzzWords(f *testing.F) {
	for _, word := range append(seedPaths, "A=B", "LD_PRELOAD", "$(id)", "`id`", "eyJ9", "AAAA", "0", "-1", "command_executed") {
		f.Add(word)
	}
	w := newWorld(f, nil)
	cb, o := w.plant(f)
	ctx := f.Context()
	sb := w.sandbox(ctx, cb)
	f.Fuzz(func(t *testing.T, word string) {
		if !utf8.ValidString(word) {
			return
		}
		made, err := w.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{Name: word, OwnerId: word})
		if proper(t, "CreateCodebase", err) {
			if made.Name != word || made.OwnerId != word {
				t.Errorf("%q became %q of %q", word, made.Name, made.OwnerId)
			}
			_, err = w.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: made.Id})
			proper(t, "DeleteCodebase", err)
		}
		linked, err := w.codebases.LinkCodebase(ctx, &sandboxv1.LinkCodebaseRequest{Name: "x", OwnerId: "x", Path: word, IgnoreFiles: true})
		if proper(t, "LinkCodebase", err) {
			_, err = w.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: linked.Id})
			proper(t, "DeleteCodebase", err)
		}
		_, err = w.codebases.ListCodebases(ctx, &sandboxv1.ListCodebasesRequest{OwnerId: word})
		proper(t, "ListCodebases", err)
		_, err = w.codebases.ListCodebases(ctx, &sandboxv1.ListCodebasesRequest{PageToken: word})
		proper(t, "ListCodebases", err)
		_, err = w.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{PageToken: word, PageSize: 1})
		proper(t, "ListSandboxes", err)
		_, err = w.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{OwnerId: word, Name: word, Labels: map[string]string{word: word}})
		proper(t, "ListSandboxes", err)
		named, err := w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Name: word, Labels: map[string]string{word: word}})
		if proper(t, "CreateSandbox", err) {
			if named.Labels[word] != word || word != "" && named.Name != word {
				t.Errorf("%q became %v", word, named)
			}
			_, err = w.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: named.Id})
			proper(t, "DestroySandbox", err)
		}
		_, err = w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Image: word + "x"})
		if proper(t, "CreateSandbox", err) {
			t.Errorf("bwrap has the image %q", word)
		}
		session, err := w.sandboxes.CreateSession(ctx, &sandboxv1.CreateSessionRequest{SandboxId: sb, Shell: "/no" + word})
		if proper(t, "CreateSession", err) {
			t.Errorf("there is a shell %q: %v", "/no"+word, session)
		}
		_, err = w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "true", Env: map[string]string{word: word}})
		proper(t, "Exec", err)
		events, err := w.sandboxes.Audit(ctx, &sandboxv1.AuditRequest{SandboxId: sb, Events: []string{word + "x"}})
		if err == nil {
			_, err = events.Recv()
		}
		if proper(t, "Audit", err) {
			t.Errorf("there is an event %q", word+"x")
		}
		o.check(t)
	})
}

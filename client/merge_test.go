//go:build linux

package client_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/client"
)

func TestApplyMergesTexts(t *testing.T) {
	text := "1\n2\n3\n4\n5\n6\n7\n8\n"
	box, dir := linked(t, open(t), "full-access", map[string]string{"f": text})
	edit := func(old, line string) {
		t.Helper()
		content, err := os.ReadFile(dir + "/f")
		if err == nil {
			err = os.WriteFile(dir+"/f", []byte(strings.Replace(string(content), old+"\n", line+"\n", 1)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, box, "sed -i 's/^8$/eight/' f")
	edit("1", "one")
	done, err := box.Apply(t.Context())
	if err != nil || len(done.Results) != 1 || done.Results[0].Outcome != client.OutcomeApplied || !done.Results[0].Merged || done.Results[0].Conflicts != 0 {
		t.Fatalf("%+v, %v, want f merged", done, err)
	}
	run(t, box, "sed -i 's/^4$/by the sandbox/' f")
	edit("4", "by a person")
	if _, err := box.Apply(t.Context()); !errors.Is(err, client.ErrConflict) {
		t.Errorf("%v, want a conflict", err)
	}
	would, err := box.ApplyDryRun(t.Context())
	if err != nil || would.Results[0].Kind != client.ConflictText {
		t.Errorf("%+v, %v, want a conflict in the text", would, err)
	}
	if _, err := box.ApplyResolving(t.Context(), "both", ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an unknown resolution: %v", err)
	}
	done, err = box.ApplyResolving(t.Context(), client.ResolveTheirs, "")
	if err != nil || !done.Results[0].Merged || done.Results[0].Conflicts != 1 {
		t.Errorf("%+v, %v, want one conflict resolved", done, err)
	}
	want := "one\n2\n3\nby the sandbox\n5\n6\n7\neight\n"
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != want {
		t.Errorf("f is %q, %v, want %q", got, err, want)
	}
}

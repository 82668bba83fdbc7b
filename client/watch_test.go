//go:build linux

package client_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/agentfense/agentfense/client"
)

func TestWatchTellsWhatChanges(t *testing.T) {
	box, dir := linked(t, open(t), "development", map[string]string{"a.pem": "2"})
	if err := os.Mkdir(dir+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/d/f", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, err := box.Files.Watch(ctx, "/workspace/d", true)
	if err != nil {
		t.Fatal(err)
	}
	run(t, box, "echo x >elsewhere; echo x >d/new; rm d/f; rm -f a.pem")
	want := []client.FileChange{{Path: "d/f", Kind: "deleted"}, {Path: "d/new", Kind: "created"}}
	for change, err := range changes {
		if err != nil {
			t.Fatal(err)
		}
		if change == (client.FileChange{Path: "d/new", Kind: "modified"}) {
			continue // told apart from its creation
		}
		i := slices.Index(want, change)
		if i < 0 {
			t.Fatalf("told of %v", change)
		}
		if want = slices.Delete(want, i, i+1); len(want) == 0 {
			break
		}
	}

	changes, err = box.Files.Watch(ctx, "", false)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, err := range changes {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	}
	if err := box.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Files.Watch(t.Context(), "", true); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("watching what does not run: %v", err)
	}
}

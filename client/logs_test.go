//go:build linux

package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/agentfense/agentfense/client"
)

func TestLogsTellWhatDetachedCommandsWrote(t *testing.T) {
	c := open(t)
	box, _ := linked(t, c, "development", nil)
	for _, err := range box.Logs(t.Context(), true) {
		t.Errorf("before a command: %v", err)
	}
	id, err := box.ExecDetached(t.Context(), "echo one; echo problem >&2; until test -e go; do sleep 0.02; done; echo two; exit 6")
	if err != nil {
		t.Fatal(err)
	}
	var argv []string
	var stdout, stderr string
	code := -1
	for r, err := range box.Logs(t.Context(), true) {
		if err != nil {
			t.Fatal(err)
		}
		if r.ExecID != id || r.Time.IsZero() || r.Continued || r.LostBytes != 0 {
			t.Errorf("a record: %+v, of %s", r, id)
		}
		argv = append(argv, r.Argv...)
		if r.Stderr {
			stderr += string(r.Data)
		} else {
			stdout += string(r.Data)
		}
		if stdout == "one\n" && stderr == "problem\n" { // it goes on with what comes
			run(t, box, "touch go")
		}
		if r.ExitCode != nil {
			code = *r.ExitCode
		}
	}
	if len(argv) == 0 || stdout != "one\ntwo\n" || stderr != "problem\n" || code != 6 {
		t.Errorf("argv %q, stdout %q, stderr %q, code %d", argv, stdout, stderr, code)
	}
	if err := box.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	stdout = ""
	for r, err := range box.Logs(t.Context(), false) {
		if err != nil {
			t.Fatal(err)
		}
		if !r.Stderr {
			stdout += string(r.Data)
		}
	}
	if stdout != "one\ntwo\n" {
		t.Errorf("of a stopped sandbox: %q", stdout)
	}
	info, err := box.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gone, err := c.CreateSandbox(t.Context(), info.CodebaseID)
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, err := range gone.Logs(t.Context(), false) {
		if !errors.Is(err, client.ErrNotFound) {
			t.Errorf("of a sandbox that is gone: %v", err)
		}
	}
}

func TestASandboxHasItsVariablesAndTellsWhatItHolds(t *testing.T) {
	c := open(t)
	first, _ := linked(t, c, "development", nil)
	info, err := first.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	box, err := c.CreateSandbox(t.Context(), info.CodebaseID, client.WithPreset("development"), client.WithEnv(map[string]string{"A": "its own", "B": "hidden"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if r := run(t, box, "echo $A $B; echo >a; echo >b"); string(r.Stdout) != "its own hidden\n" {
		t.Errorf("a command has %q", r.Stdout)
	}
	r, err := box.Run(t.Context(), "echo $A $B", client.WithEnv(map[string]string{"A": "given"}))
	if err != nil || string(r.Stdout) != "given hidden\n" {
		t.Errorf("with one given: %q, %v", r.Stdout, err)
	}
	if info, err = box.Info(t.Context()); err != nil || !slices.Equal(info.Variables, []string{"A", "B"}) || info.Usage != nil {
		t.Errorf("it is %+v, %v", info, err)
	}
	for listed, err := range c.Sandboxes(t.Context(), client.WithCodebaseID(info.CodebaseID), client.WithUsage()) {
		u := listed.Usage
		if err != nil || u == nil || listed.ID == box.ID && (u.PendingChanges != 2 || u.MoreChanges || u.DiskBytes == 0) {
			t.Errorf("%s holds %+v, %v", listed.ID, u, err)
		}
	}
}

//go:build linux

package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/agentfense/agentfense/client"
)

// A refused open waits for the answer, and a grant is a rule beside those of the sandbox.
func TestAsksAndGrants(t *testing.T) {
	c := open(t)
	base, err := c.CreateCodebase(t.Context(), "asks", "me")
	if err != nil {
		t.Fatal(err)
	}
	box, err := c.CreateSandbox(t.Context(), base.ID, client.WithPreset("view-only"), client.WithPermissions(client.PermissionRule{Pattern: "/made", Permission: client.Write, Priority: 1}), client.WithAsk(5*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Destroy(t.Context()) })
	run(t, box, "echo one >made")
	if err := box.SetPolicy(t.Context(), client.Policy{Preset: "view-only"}); err != nil {
		t.Fatal(err)
	}
	read := make(chan *client.ExecResult, 1)
	go func() {
		r, err := box.Run(t.Context(), "cat made")
		if err != nil {
			t.Error(err)
		}
		read <- r
	}()
	for asks, err := range box.Asks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if len(asks) == 0 {
			continue // not yet
		}
		a := asks[0]
		if a.Path != "made" || a.Permission != client.View || a.Needed != client.Read || a.Host != "" || a.Waiting != 1 || !a.Until.After(a.Since) || a.Program != "cat" {
			t.Errorf("asked: %+v", a)
		}
		if err := box.AnswerAsk(t.Context(), a.ID, true, "always"); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("an unknown scope: %v", err)
		}
		if err := box.AnswerAsk(t.Context(), a.ID, true, client.AskSandbox); err != nil {
			t.Fatal(err)
		}
		break
	}
	if r := <-read; r == nil || string(r.Stdout) != "one\n" {
		t.Errorf("read: %+v", r)
	}
	if err := box.AnswerAsk(t.Context(), "1", true, client.AskOnce); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a second answer: %v", err)
	}

	grants, err := box.GrantPath(t.Context(), "/workspace/made", false, client.Write, time.Hour)
	if n := len(grants); err != nil || n == 0 || grants[n-1].Path != "made" || grants[n-1].Permission != client.Write || time.Until(grants[n-1].Until) < time.Minute {
		t.Errorf("granted: %+v, %v", grants, err)
	}
	run(t, box, "echo two >made")
	if text, err := box.Files.Read(t.Context(), "made"); err != nil || string(text) != "two\n" {
		t.Errorf("made is %q, %v", text, err)
	}
	info, err := box.Info(t.Context())
	if err != nil || info.AskTimeout != 5*time.Minute || len(info.Grants) != len(grants) {
		t.Errorf("info: %+v, %v", info, err)
	}
	if left, err := box.RevokePath(t.Context(), "made", false); err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	if _, err := box.RevokePath(t.Context(), "made", false); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("revoked again: %v", err)
	}
	if _, err := box.GrantPath(t.Context(), "made", false, "all", 0); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an unknown permission: %v", err)
	}
	if err := box.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, err := range box.Asks(t.Context()) {
		if !errors.Is(err, client.ErrNotRunning) {
			t.Errorf("asks of what does not run: %v", err)
		}
	}
	if info, err := box.Update(t.Context(), client.Update{Ask: new(time.Duration(0))}); err != nil || info.AskTimeout != 0 {
		t.Errorf("no longer asking: %+v, %v", info, err)
	}
}

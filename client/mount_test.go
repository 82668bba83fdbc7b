//go:build linux

package client_test

import (
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/client"
)

// library makes a directory below the root of mounts.
func library(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(root, "library-")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"a": "one\n", "hidden": "x\n", "workspace": "w\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestMountsAreReviewedAndApplied(t *testing.T) {
	c := open(t)
	dir := library(t)
	base, err := c.CreateCodebase(t.Context(), "mounts", "me")
	if err != nil {
		t.Fatal(err)
	}
	box, err := c.CreateSandbox(t.Context(), base.ID,
		client.WithMount(client.Mount{Source: dir, Place: "/opt/lib", Mode: "cow"}),
		client.WithMount(client.Mount{Source: dir, Place: "/opt/rules", Name: "rules", Rules: []client.PermissionRule{{Pattern: "**", Permission: client.Read}, {Pattern: "/hidden", Permission: client.None}}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Destroy(t.Context()) })
	info, err := box.Info(t.Context())
	if err != nil || len(info.Mounts) != 2 || info.Mounts[0].Name != "lib" || info.Mounts[0].Mode != "cow" || info.Mounts[1].Place != "/opt/rules" || len(info.Mounts[1].Rules) != 2 {
		t.Errorf("info: %+v, %v", info.Mounts, err)
	}
	r := run(t, box, "cat /opt/rules/hidden; echo two >/opt/lib/a; echo new >/opt/lib/new; cat /opt/rules/a")
	if string(r.Stdout) != "one\n" || len(r.Denied) == 0 || r.Denied[0].Mount != "rules" || r.Denied[0].Path != "hidden" {
		t.Errorf("inside: %q, denied %+v", r.Stdout, r.Denied)
	}
	if n := len(r.Changed); n < 2 || r.Changed[n-2] != (client.FileChange{Mount: "lib", Path: "a", Kind: "modified"}) || r.Changed[n-1] != (client.FileChange{Mount: "lib", Path: "new", Kind: "created"}) || r.ChangedCount != int64(n) {
		t.Errorf("changed: %+v, %d", r.Changed, r.ChangedCount)
	}
	if changes, err := box.Diff(t.Context()); err != nil || len(changes) > 0 {
		t.Errorf("changes of the workspace: %v, %v", changes, err)
	}

	lib := box.In("lib")
	if text, err := lib.Files.Read(t.Context(), "/a"); err != nil || string(text) != "two\n" {
		t.Errorf("a is %q, %v", text, err)
	}
	if text, err := lib.Files.Read(t.Context(), "/workspace"); err != nil || string(text) != "w\n" {
		t.Errorf("workspace, which is a name in a mount, is %q, %v", text, err)
	}
	if _, err := box.In("rules").Files.Stat(t.Context(), "hidden"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("what is hidden: %v", err)
	}
	if err := lib.Files.Write(t.Context(), "b", strings.NewReader("")); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a write from outside: %v", err)
	}
	review, err := lib.Review(t.Context())
	if err != nil || len(review.Files) != 2 || review.Digest == "" {
		t.Fatalf("review: %+v, %v", review, err)
	}
	if names, err := lib.DiffNames(t.Context(), "a"); err != nil || len(names) != 1 || len(names[0].Patch) > 0 {
		t.Errorf("names: %v, %v", names, err)
	}
	if _, err := box.Snapshot(t.Context(), "first"); err != nil {
		t.Error(err)
	}
	run(t, box, "echo three >/opt/lib/new")
	if changes, err := lib.Compare(t.Context(), box.At("first"), box.At("")); err != nil || len(changes) != 1 || changes[0].Path != "new" || !strings.Contains(string(changes[0].Patch), "+three\n") {
		t.Errorf("since the snapshot: %v, %v", changes, err)
	}
	if changes, err := lib.Compare(t.Context(), box.At("source"), box.At("first"), "/a"); err != nil || len(changes) != 1 || changes[0].Path != "a" {
		t.Errorf("a part of the snapshot: %v, %v", changes, err)
	}
	if _, err := box.In("rules").Compare(t.Context(), box.At("first"), box.At("")); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("states of a mount that can only be read: %v", err)
	}
	if did, err := lib.ApplyDryRun(t.Context(), "a"); err != nil || did.AppliedCount != 1 {
		t.Errorf("dry run: %+v, %v", did, err)
	}
	if did, err := lib.ApplyReviewed(t.Context(), review.Digest); err != nil || did.AppliedCount != 1 {
		t.Errorf("apply of what was reviewed: %+v, %v", did, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(text) != "two\n" {
		t.Errorf("on the host: %q, %v", text, err)
	}
	if did, err := lib.DiscardDryRun(t.Context()); err != nil || did.PathCount != 1 {
		t.Errorf("what would be discarded: %+v, %v", did, err)
	}
	if did, err := lib.Discard(t.Context(), "new"); err != nil || did.PathCount != 1 {
		t.Errorf("discard: %+v, %v", did, err)
	}
	run(t, box, "echo 4 >/opt/lib/a")
	if did, err := lib.Apply(t.Context()); err != nil || did.AppliedCount != 1 {
		t.Errorf("apply: %+v, %v", did, err)
	}
	if changes, err := lib.Diff(t.Context()); err != nil || len(changes) > 0 {
		t.Errorf("afterwards: %v, %v", changes, err)
	}
	if _, err := lib.ApplyReviewed(t.Context(), ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("apply without a digest: %v", err)
	}
	if _, err := box.In("rules").Diff(t.Context()); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("changes of a mount that can only be read: %v", err)
	}
	if _, err := box.In("nothing").Apply(t.Context()); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a mount that does not exist: %v", err)
	}
}

func TestMountsAreWatchedAndExplained(t *testing.T) {
	c := open(t)
	dir := library(t)
	base, err := c.CreateCodebase(t.Context(), "mounts", "me")
	if err != nil {
		t.Fatal(err)
	}
	box, err := c.CreateSandbox(t.Context(), base.ID,
		client.WithPreset("full-access"),
		client.WithMount(client.Mount{Source: dir, Place: "/opt/lib", Mode: "ro"}),
		client.WithMount(client.Mount{Source: dir, Place: "/opt/rules", Name: "rules", Rules: []client.PermissionRule{{Pattern: "**", Permission: client.Write}, {Pattern: "/hidden", Permission: client.None, Strict: true}}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Destroy(t.Context()) })
	rules := box.In("rules")
	x, err := rules.Explain(t.Context(), "hidden")
	if err != nil || x.Permission != client.None || x.RuleIndex != 1 || x.Rule == nil || x.Rule.Pattern != "/hidden" || len(x.Matches) != 2 {
		t.Errorf("explained: %+v, %v", x, err)
	}
	if x, err := box.In("lib").Explain(t.Context(), "hidden"); err != nil || x.Permission != client.Read || x.RuleIndex != -1 || x.Rule != nil {
		t.Errorf("in a mount without rules: %+v, %v", x, err)
	}
	if _, err := box.In("nothing").Explain(t.Context(), "a"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("in a mount that does not exist: %v", err)
	}
	if _, err := box.In("nothing").Files.Watch(t.Context(), "", true); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("watching a mount that does not exist: %v", err)
	}

	changes, err := rules.Files.Watch(t.Context(), "/", true)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := box.In("lib").Files.Watch(t.Context(), "", true)
	if err != nil {
		t.Fatal(err)
	}
	run(t, box, "ls -R /opt >/dev/null; echo 1 >elsewhere; rm /opt/rules/a; ! touch /opt/rules/hidden")
	if err := os.WriteFile(filepath.Join(dir, "later"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wantNext(t, changes, client.FileChange{Mount: "rules", Path: "a", Kind: "deleted"}, client.FileChange{Mount: "rules", Path: "later", Kind: "created"})
	wantNext(t, lib, client.FileChange{Mount: "lib", Path: "later", Kind: "created"})
}

// wantNext checks the next changes of a watch.
func wantNext(t *testing.T, changes iter.Seq2[client.FileChange, error], want ...client.FileChange) {
	t.Helper()
	for change, err := range changes {
		if err != nil {
			t.Fatal(err)
		}
		if change != want[0] {
			t.Fatalf("told of %+v, want %+v", change, want[0])
		}
		if want = want[1:]; len(want) == 0 {
			return
		}
	}
}

func TestScratchDirectoriesAndSecretsOfAServer(t *testing.T) {
	open(t)
	box, err := client.FromLocal(t.Context(), t.TempDir(), client.WithUpload(), client.WithPreset("full-access"), client.WithSecrets("API_KEY"), client.WithoutStart(), client.WithScratch("nm"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Destroy(t.Context()) })
	info, err := box.Info(t.Context())
	if err != nil || len(info.Scratch) != 1 || info.Scratch[0] != "nm" || len(info.Secrets) != 1 || info.Secrets[0].Name != "API_KEY" || info.Secrets[0].Hosts[0] != "api.example.com:443" {
		t.Errorf("info: %+v, %v", info, err)
	}
	info, err = box.Update(t.Context(), client.Update{Secrets: []string{}, Scratch: []string{"other"}, NetLimits: []string{"out=1M"}, Resources: &client.ResourceLimits{PIDsLimit: 50}})
	if err != nil || len(info.Secrets) != 0 || len(info.Scratch) != 1 || info.Scratch[0] != "other" || len(info.NetLimits) != 1 || info.Resources.PIDsLimit != 50 {
		t.Errorf("updated: %+v, %v", info, err)
	}
	if _, err := box.Update(t.Context(), client.Update{}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an update of nothing: %v", err)
	}
	if _, err := box.Update(t.Context(), client.Update{Secrets: []string{"OTHER"}}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("an update to an unknown secret: %v", err)
	}
	for what, option := range map[string]client.SandboxOption{
		"an unknown secret":  client.WithSecrets("OTHER"),
		"a directory's name": client.WithScratch("../nm"),
		"outside of a root":  client.WithMount(client.Mount{Source: "/etc"}),
		"a malformed rule":   client.WithMount(client.Mount{Source: root, Rules: []client.PermissionRule{{Pattern: "[", Permission: client.Read}}}),
	} {
		want := map[string]error{"an unknown secret": client.ErrNotFound, "outside of a root": client.ErrDenied}[what]
		if want == nil {
			want = client.ErrInvalid
		}
		if _, err := client.FromLocal(t.Context(), t.TempDir(), client.WithUpload(), option); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

func TestTheEndOfACommandKeepsState(t *testing.T) {
	c := open(t)
	dir := library(t)
	base, err := c.CreateCodebase(t.Context(), "keep", "me")
	if err != nil {
		t.Fatal(err)
	}
	rules := []client.PermissionRule{
		{Pattern: "**", Permission: client.Write},
		{Pattern: "/a", Type: client.File, Permission: client.Write, Keep: true},
		{Pattern: "/run*", Permission: client.Write, Keep: true},
	}
	if _, err := c.CreateSandbox(t.Context(), base.ID, client.WithPermissions(rules...)); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("in the workspace: %v", err)
	}
	box, err := c.CreateSandbox(t.Context(), base.ID, client.WithMount(client.Mount{Source: dir, Place: "/opt/lib", Rules: rules}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Destroy(t.Context()) })
	r := run(t, box, "cd /opt/lib && echo two >a && echo x >hidden && echo x >run.sh && chmod +x run.sh")
	if k := r.Keep; k == nil || k.Note != "" || k.KeptCount != 1 || len(k.Kept) != 1 || k.Kept[0].Mount != "lib" || k.Kept[0].Path != "a" ||
		k.NotKeptCount != 1 || len(k.NotKept) != 1 || k.NotKept[0].Path != "run.sh" || k.NotKept[0].Reason != "it is marked: runs on the host: executable" {
		t.Errorf("kept: %+v", r.Keep)
	}
	for name, want := range map[string]string{"a": "two\n", "hidden": "x\n", "run.sh": ""} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); string(text) != want || err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
}

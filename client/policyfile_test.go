//go:build linux

package client_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/client"
)

func TestPolicyIsKeptInAFile(t *testing.T) {
	p := client.Policy{Preset: "agent-safe"}.Hide("*.sql", "it's \"odd\": # x").Write("/src/**").
		With(client.PermissionRule{Pattern: "docs", Permission: client.View, Type: client.Directory, Priority: -3}, client.PermissionRule{Pattern: "a", Permission: client.Read, Type: client.File},
			client.PermissionRule{Pattern: "*.key", Permission: client.None, Type: client.Auto, Strict: true})
	var file bytes.Buffer
	if n, err := p.WriteTo(&file); err != nil || n != int64(file.Len()) {
		t.Fatal(n, err)
	}
	again, err := client.ReadPolicy(&file, "policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, again); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	preset, err := client.Preset("agent-safe")
	if err != nil {
		t.Fatal(err)
	}
	if all, err := again.All(); err != nil || len(all) != len(preset)+6 {
		t.Errorf("%d rules, %v", len(all), err)
	}
}

func TestPolicyThatIsMalformed(t *testing.T) {
	for name, p := range map[string]client.Policy{
		"permission": {Rules: []client.PermissionRule{{Pattern: "a", Permission: "rw"}}},
		"type":       {Rules: []client.PermissionRule{{Pattern: "a", Permission: client.Read, Type: "regex"}}},
		"pattern":    {Rules: []client.PermissionRule{{Pattern: "[", Permission: client.Read}}},
		"preset":     {Preset: "agent-save"},
		"origin":     {Rules: []client.PermissionRule{{Pattern: "a", Permission: client.None, Origin: client.OriginHide}}},
		"no text":    {Rules: []client.PermissionRule{{Pattern: "\xff", Permission: client.Read}}},
	} {
		if _, err := p.WriteTo(&bytes.Buffer{}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := client.ReadPolicy(strings.NewReader("version: 1\npreset: read-only\nrules:\n  - {pattern: a, permision: read}\n"), "my.yaml")
	if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "my.yaml:4") || !strings.Contains(err.Error(), "permission") {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"scratch: [a]": `my.yaml:3: scratch "a": a policy has no scratch directories: leave it out, and name them with WithScratch`,
		"rules: [{pattern: a, permission: write, apply: keep}]": "my.yaml:3: apply: keep: a policy keeps no state",
	} {
		_, err = client.ReadPolicy(strings.NewReader("version: 1\npreset: read-only\n"+text+"\n"), "my.yaml")
		if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err = client.ReadPolicy(strings.NewReader("version: 1\npreset: read-only\nnetwork: {allow: [a.example]}\n"), "my.yaml")
	if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "my.yaml:3: network: a policy has no hosts") || !strings.Contains(err.Error(), "WithAllowNet") {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := client.ReadPolicy(failing{broken}, "my.yaml"); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := (client.Policy{Preset: "read-only"}).WriteTo(failing{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestPolicyIsThatOfTheSandbox(t *testing.T) {
	leavesNothing(t)
	dir := repository(t, map[string]string{"a": "a\n", "deep/x.sql": "x\n", "src/b": "b\n"})
	box, err := client.FromLocal(t.Context(), dir, client.WithPolicy(client.Policy{Preset: "read-only"}.Hide("*.sql").Write("src/")))
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if r := run(t, box, "ls deep; echo c >src/b && cat src/b; echo c >a"); string(r.Stdout) != "c\n" || r.Success() {
		t.Errorf("%q %q", r.Stdout, r.Stderr)
	}
	info, err := box.Info(t.Context())
	preset, presetErr := client.Preset("read-only")
	own := info.Permissions[min(len(preset), len(info.Permissions)):]
	if err != nil || presetErr != nil || len(own) != 2 || own[0].Type != client.Auto {
		t.Errorf("%+v %v", info.Permissions, err)
	}
	masked := client.PermissionRule{Pattern: "a", Permission: client.Read, Type: client.Auto, Redact: client.RedactEnv, Priority: 9}
	other := client.PermissionRule{Pattern: "/src/b", Permission: client.Read, Type: client.File, Substitute: "/deep/x.sql", Priority: 9}
	if err := box.SetPolicy(t.Context(), client.Policy{Rules: []client.PermissionRule{{Pattern: "**", Permission: client.Read}, masked, other}}); err != nil {
		t.Fatal(err)
	}
	if info, err := box.Info(t.Context()); err != nil || info.Permissions[1] != masked || info.Permissions[2] != other {
		t.Fatalf("%+v %v", info.Permissions, err)
	}
	if r := run(t, box, "cat src/b; ! test -e a"); string(r.Stdout) != "x\n" || !r.Success() { // a is no env file
		t.Errorf("%q %q", r.Stdout, r.Stderr)
	}
	// What a flag has said stays what it was when it is sent back.
	hidden := client.PermissionRule{Pattern: "a", Permission: client.None, Type: client.Auto, Origin: client.OriginHide}
	grant := client.PermissionRule{Pattern: "/a", Permission: client.Write, Type: client.File, Priority: 1 << 20}
	if err := box.SetPolicy(t.Context(), client.Policy{Rules: append(info.Permissions, hidden)}); err != nil {
		t.Fatal(err)
	}
	if info, err = box.Info(t.Context()); err != nil || info.Permissions[len(info.Permissions)-1] != hidden {
		t.Fatalf("%+v %v", info.Permissions, err)
	}
	if err := box.SetPolicy(t.Context(), client.Policy{Rules: append(info.Permissions, grant)}); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Files.Stat(t.Context(), "a"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("what --hide says is weakened: %v", err)
	}
	if err := box.SetPolicy(t.Context(), client.Policy{Rules: []client.PermissionRule{{Pattern: "a", Permission: client.Read, Origin: "other"}}}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an unknown origin: %v", err)
	}
	if err := box.SetPolicy(t.Context(), client.Policy{}); err != nil {
		t.Fatal(err)
	}
	if entries, err := box.Files.List(t.Context(), ""); err != nil || len(entries) > 0 {
		t.Errorf("an empty policy shows %+v %v", entries, err)
	}
	safe, err := client.Preset(client.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	onTop, err := client.FromLocal(t.Context(), dir, client.WithPermissions(grant), client.WithResources(client.ResourceLimits{CPUQuota: 150 * time.Millisecond}), client.WithoutStart())
	if err != nil {
		t.Fatal(err)
	}
	defer onTop.Close()
	if info, err = onTop.Info(t.Context()); err != nil || !slices.Equal(info.Permissions, append(safe, grant)) || info.Resources.CPUQuota != 150*time.Millisecond {
		t.Errorf("%+v %v", info, err)
	}
	empty, err := client.FromLocal(t.Context(), dir, client.WithPolicy(client.Policy{}))
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if info, err := empty.Info(t.Context()); err != nil || len(info.Permissions) > 0 {
		t.Errorf("%+v %v", info.Permissions, err)
	}
	if _, err := client.FromLocal(t.Context(), dir, client.WithPolicy(client.Policy{}), client.WithPreset("read-only")); !errors.Is(err, client.ErrInvalid) {
		t.Error(err)
	}
}

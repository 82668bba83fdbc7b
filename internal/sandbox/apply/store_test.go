package apply_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// openHome opens a state directory of the test's own.
func openHome(t *testing.T) *record.Home {
	t.Helper()
	h, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// recordOf returns a record of a source, with a policy that lets everything be
// written.
func recordOf(t testing.TB, h *record.Home, source, name string) record.Record {
	t.Helper()
	s, err := h.ResolveSource(source)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{
		Name: name, Source: s, Workspace: string(s.Path), Runtime: "bwrap", Net: "none",
		Rules: []policy.Rule{{Pattern: "**", Permission: policy.Write, Source: "test"}},
	}
}

func create(t *testing.T, h *record.Home, name string) *record.Sandbox {
	t.Helper()
	s, err := h.Create(recordOf(t, h, t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "fix", "0", "a.b_c-d", strings.Repeat("n", 63)} {
		if err := record.CheckName(good); err != nil {
			t.Errorf("CheckName(%q) = %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", ".a", "-a", "_a", "A", "a/b", "../a", "a\n", "ä", "a b", "sb_0123456789abcdef", "sb_", strings.Repeat("n", 64)} {
		if err := record.CheckName(bad); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("CheckName(%q) = %v, want Invalid", bad, err)
		}
	}
}

func TestARecordComesBackAsItWas(t *testing.T) {
	h := openHome(t)
	r := recordOf(t, h, t.TempDir(), "fix")
	r.Source.Path += "\xff" // bytes that JSON cannot hold
	r.Workspace += `\xff` + "\xff"
	r.Rules = append(r.Rules, policy.Rule{Pattern: "\xfe.pem", Type: policy.Glob, Priority: -3, Origin: policy.OriginHide, Source: "--hide"})
	r.EarlierRules = [][]policy.Rule{{{Pattern: "/a", Permission: policy.View, Type: policy.File}}}
	r.PolicyNote = "preset development"
	r.Mounts = []record.Mount{{Source: "/opt/\xff", Target: "/opt/go"}}
	r.Limits = record.Limits{MemoryBytes: 1 << 29, CPUs: 0.5, PIDs: 100, DiskBytes: 1 << 30, DiskInodes: 9, Timeout: record.Duration(90 * time.Second)}
	made, err := h.Create(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fix", string(made.ID())} {
		read, err := h.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(made.Record(), read.Record()); diff != "" {
			t.Errorf("record of %s (-made +read):\n%s", name, diff)
		}
	}
	got := made.Record()
	if os.Geteuid() == 0 {
		r.UID = new(uint32(1000))
	}
	r.ID, r.CreatedAt, r.HostUID, r.SchemaVersion = got.ID, got.CreatedAt, got.HostUID, record.SchemaVersion
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("record (-given +made):\n%s", diff)
	}
}

func TestOpenRefusesADamagedRecord(t *testing.T) {
	h := openHome(t)
	path := filepath.Join(create(t, h, "fix").Dir(), "sandbox.json")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, with string) string {
		if !strings.Contains(string(whole), old) {
			t.Fatalf("the record has no %s", old)
		}
		return strings.Replace(string(whole), old, with, 1)
	}
	const mounted = `"mounts": [{"source": "/a", "target": "/b", `
	tests := []struct{ name, text, want string }{
		{"an empty file", "", "damaged"},
		{"a file cut short", string(whole[:len(whole)/2]), "damaged"},
		{"text behind the record", string(whole) + "{}", "damaged"},
		{"an unknown key", replace(`"net"`, `"network"`), `unknown field "network"`},
		{"an unknown key of a rule", replace(`"permission": "write"`, `"permission": "write", "prio": 3`), "not in the form"},
		{"an unknown permission", replace(`"permission": "write"`, `"permission": "all"`), "unknown permission"},
		{"a key in other letters", replace(`"net"`, `"Net"`), "not in the form"},
		{
			"a newer version", replace(schemaVersion(record.SchemaVersion), schemaVersion(record.SchemaVersion+1)),
			fmt.Sprintf("has schema version %d, this agentfense knows %d", record.SchemaVersion+1, record.SchemaVersion),
		},
		{"a mount of an unknown mode", replace(`"limits"`, mounted+`"name": "b", "mode": "all"}], "limits"`), `unknown mode "all"`},
		{"a mount with a name that is none", replace(`"limits"`, mounted+`"name": "../b", "mode": "ro"}], "limits"`), `name "../b"`},
		{"a mount with a mode and without a name", replace(`"limits"`, mounted+`"mode": "ro"}], "limits"`), `name ""`},
		{"the record of another sandbox", replace(`"name": "fix"`, `"name": "fax"`), `it is of sandbox "fax"`},
		{"a malformed id", replace(`"id": "sb_`, `"id": "xx_`), "malformed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := h.Open("fix")
			if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open = %v, want a Precondition naming %s with %q", err, path, tt.want)
			}
		})
	}
	t.Run("others are listed, and the damaged one can be removed", func(t *testing.T) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		all, err := h.List()
		if len(all) != 0 || !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("List = %v, %v, want the damage", all, err)
		}
		if err := h.Remove("fix"); err != nil {
			t.Errorf("Remove = %v", err)
		}
		if _, err := h.Open("fix"); !errdefs.Is(err, errdefs.NotFound) {
			t.Errorf("Open after Remove = %v, want NotFound", err)
		}
	})
}

func TestCreateRefusesATakenName(t *testing.T) {
	h := openHome(t)
	first := create(t, h, "fix")
	if _, err := h.Create(recordOf(t, h, t.TempDir(), "fix")); !errdefs.Is(err, errdefs.Exists) {
		t.Errorf("Create = %v, want Exists", err)
	}
	if again, err := h.Open("fix"); err != nil || again.ID() != first.ID() {
		t.Errorf("Open = %v, %v, want the first", again, err)
	}
	if names := dirNames(t, filepath.Dir(first.Dir())); !slices.Equal(names, []string{"fix"}) {
		t.Errorf("sandboxes holds %q", names)
	}
}

func dirNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSandboxesMadeAtOnceAreApart(t *testing.T) {
	h := openHome(t)
	r := recordOf(t, h, t.TempDir(), "")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := h.Create(r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all, err := h.List()
	if err != nil || len(all) != 20 {
		t.Fatalf("List = %d sandboxes, %v, want 20", len(all), err)
	}
	ids, uids := map[record.ID]bool{}, map[uint32]bool{}
	for _, s := range all {
		ids[s.ID()] = true
		uids[s.Record().HostUID] = true
		if err := record.CheckName(s.Name()); err != nil {
			t.Error(err)
		}
	}
	if len(ids) != 20 {
		t.Errorf("20 sandboxes have %d ids", len(ids))
	}
	if os.Geteuid() == 0 && (len(uids) != 20 || uids[0]) {
		t.Errorf("20 sandboxes of root have the host uids %v", uids)
	}
}

func TestUpdateKeepsTheIdentity(t *testing.T) {
	h := openHome(t)
	s := create(t, h, "fix")
	before := s.Record()
	narrow := []policy.Rule{{Pattern: "**", Permission: policy.Read}}
	err := s.Update(func(r *record.Record) error {
		r.SetRules(narrow, "--policy strict.yaml")
		r.ID, r.Name, r.HostUID = "sb_0000000000000000", "other", 0
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := before
	want.EarlierRules, want.Rules, want.PolicyNote = [][]policy.Rule{before.Rules}, narrow, "--policy strict.yaml"
	read, err := h.Open("fix")
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []record.Record{s.Record(), read.Record()} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("record after Update (-want +got):\n%s", diff)
		}
	}
	for _, rules := range [][]policy.Rule{before.Rules, narrow, narrow} {
		if err := s.Update(func(r *record.Record) error { r.SetRules(rules, ""); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(s.Record().EarlierRules); got != 2 {
		t.Errorf("going to and fro between two policies remembers %d earlier ones, want 2", got)
	}
	if err := h.Remove("fix"); err != nil {
		t.Fatal(err)
	}
	create(t, h, "fix")
	if err := s.Update(func(*record.Record) error { return nil }); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Update of a removed sandbox whose name was used again = %v, want NotFound", err)
	}
}

func TestTheLockSaysWhoHoldsIt(t *testing.T) {
	h := openHome(t)
	s := create(t, h, "fix")
	if _, held, err := s.Holder(); held || err != nil {
		t.Errorf("Holder of a new sandbox = %v, %v", held, err)
	}
	lock, err := s.TryLock(record.PurposeSupervise)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.TryLock(record.PurposeApply)
	var held *record.HeldError
	if !errdefs.Is(err, errdefs.Precondition) || !errors.As(err, &held) {
		t.Fatalf("TryLock of a locked sandbox = %v, want Precondition with a HeldError", err)
	}
	want := record.Owner{PID: os.Getpid(), Purpose: record.PurposeSupervise}
	if held.Owner != want {
		t.Errorf("the holder is %v, want %v", held.Owner, want)
	}
	if got, is, err := s.Holder(); got != want || !is || err != nil {
		t.Errorf("Holder = %v, %v, %v, want %v", got, is, err, want)
	}
	if err := h.Remove("fix"); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Remove of a running sandbox = %v, want Precondition", err)
	}
	lock.Release()
	lock.Release()
	if again, err := s.TryLock(record.PurposeApply); err != nil {
		t.Errorf("TryLock after Release = %v", err)
	} else {
		again.Release()
	}
}

func TestAStaleOwnerHoldsNothing(t *testing.T) {
	h := openHome(t)
	s := create(t, h, "fix")
	if err := os.WriteFile(filepath.Join(s.Dir(), "lock"), []byte(`{"pid":1,"purpose":"supervisor"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if owner, held, err := s.Holder(); held || err != nil {
		t.Errorf("Holder = %v, %v, %v, want nobody", owner, held, err)
	}
	lock, err := s.TryLock(record.PurposeApply)
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
}

func TestLockWaitsForTheHolder(t *testing.T) {
	h := openHome(t)
	s := create(t, h, "fix")
	first, err := s.TryLock(record.PurposeApply)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		second, err := s.Lock(t.Context(), record.PurposeDiscard)
		if err == nil {
			second.Release()
		}
		got <- err
	}()
	first.Release()
	if err := <-got; err != nil {
		t.Errorf("Lock = %v", err)
	}
}

func TestRemove(t *testing.T) {
	h := openHome(t)
	s := create(t, h, "fix")
	deep := filepath.Join(s.LayersDir(), "top")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(deep, "link")); err != nil {
		t.Fatal(err)
	}
	makeDeep(t, deep, 1000)
	if err := os.Mkdir(filepath.Join(deep, "sealed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, "sealed", "f"), nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(deep, "sealed"), 0); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove("fix"); err != nil {
		t.Fatal(err)
	}
	if names := dirNames(t, filepath.Dir(s.Dir())); len(names) != 0 {
		t.Errorf("after Remove sandboxes holds %q", names)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("Remove followed a symbolic link: %v", err)
	}
	if err := h.Remove("fix"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Remove again = %v, want NotFound", err)
	}
	if err := h.Remove("../home"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Remove of a path = %v, want NotFound", err)
	}
	if _, err := s.TryLock(record.PurposeApply); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("TryLock of a removed sandbox = %v, want NotFound", err)
	}
}

// makeDeep makes depth nested directories whose path is longer than PATH_MAX.
func makeDeep(t *testing.T, dir string, depth int) {
	t.Helper()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := at.Mkdir("element", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("element")
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = next
	}
	at.Close()
}

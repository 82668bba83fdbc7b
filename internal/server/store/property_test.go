package store_test

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/server/store"
)

// model is a store beside the maps it must be equal to.
type model struct {
	path      string
	store     *store.Store
	codebases map[id.Codebase]store.Codebase
	sandboxes map[id.Sandbox]store.Sandbox
}

var ctx = context.Background()

func TestTheStoreIsAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		must(rt, err)
		m := &model{path: filepath.Join(dir, "db"), codebases: map[id.Codebase]store.Codebase{}, sandboxes: map[id.Sandbox]store.Sandbox{}}
		m.open(rt)
		defer func() { m.store.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"":                  m.compare,
			"add codebase":      m.addCodebase,
			"set content":       m.setContent,
			"remove codebase":   m.removeCodebase,
			"add sandbox":       m.addSandbox,
			"remove sandbox":    m.removeSandbox,
			"replace the index": m.replace,
			"open again":        func(rt *rapid.T) { must(rt, m.store.Close()); m.open(rt) },
		})
	})
}

func (m *model) open(rt *rapid.T) {
	s, err := store.Open(ctx, m.path, store.Options{})
	must(rt, err)
	m.store = s
}

// Few values, so that they meet.
var (
	owners  = rapid.SampledFrom([]string{"a", "b", "c'; --"})
	moments = rapid.Int64Range(-2, 4)
	texts   = rapid.OneOf(rapid.String(), rapid.Just("nul\x00\xff"))
	ids     = rapid.SampledFrom([]string{"0000000000000000", "0000000000000001", "0000000000000002", "ffffffffffffffff"})
)

func (m *model) addCodebase(rt *rapid.T) {
	c := store.Codebase{
		ID:   id.Codebase("cb_" + ids.Draw(rt, "id")),
		Name: texts.Draw(rt, "name"), OwnerID: owners.Draw(rt, "owner"), LinkedPath: texts.Draw(rt, "linked"),
		SizeBytes: rapid.Int64().Draw(rt, "size"), FileCount: rapid.Int().Draw(rt, "files"),
		CreatedAt: at(moments.Draw(rt, "created")), UpdatedAt: at(moments.Draw(rt, "updated")),
	}
	err := m.store.AddCodebase(ctx, c, 0)
	if _, taken := m.codebases[c.ID]; taken {
		wantKind(rt, err, errdefs.Exists)
		return
	}
	must(rt, err)
	m.codebases[c.ID] = c
}

func (m *model) setContent(rt *rapid.T) {
	key := id.Codebase("cb_" + ids.Draw(rt, "id"))
	c, there := m.codebases[key]
	c.SizeBytes, c.FileCount, c.UpdatedAt = rapid.Int64().Draw(rt, "size"), rapid.Int().Draw(rt, "files"), at(moments.Draw(rt, "updated"))
	err := m.store.SetCodebaseContent(ctx, key, c.SizeBytes, c.FileCount, c.UpdatedAt)
	if !there {
		wantKind(rt, err, errdefs.NotFound)
		return
	}
	must(rt, err)
	m.codebases[key] = c
}

func (m *model) removeCodebase(rt *rapid.T) {
	key := id.Codebase("cb_" + ids.Draw(rt, "id"))
	err := m.store.RemoveCodebase(ctx, key)
	used := slices.ContainsFunc(slices.Collect(maps.Values(m.sandboxes)), func(b store.Sandbox) bool { return b.CodebaseID == key })
	switch _, there := m.codebases[key]; {
	case used:
		wantKind(rt, err, errdefs.Precondition)
	case !there:
		wantKind(rt, err, errdefs.NotFound)
	default:
		must(rt, err)
		delete(m.codebases, key)
	}
}

func (m *model) drawSandbox(rt *rapid.T) store.Sandbox {
	return store.Sandbox{
		ID: id.Sandbox("sb_" + ids.Draw(rt, "id")), Name: owners.Draw(rt, "name"),
		CodebaseID: id.Codebase("cb_" + ids.Draw(rt, "codebase")),
		OwnerID:    owners.Draw(rt, "owner"), CreatedAt: at(moments.Draw(rt, "created")),
	}
}

// clashes reports whether the id or the name of b is taken.
func clashes(all map[id.Sandbox]store.Sandbox, b store.Sandbox) bool {
	_, taken := all[b.ID]
	return taken || slices.ContainsFunc(slices.Collect(maps.Values(all)), func(other store.Sandbox) bool { return other.Name == b.Name })
}

func (m *model) addSandbox(rt *rapid.T) {
	b, most := m.drawSandbox(rt), rapid.IntRange(0, 2).Draw(rt, "most")
	owned := 0
	for other := range maps.Values(m.sandboxes) {
		if other.OwnerID == b.OwnerID {
			owned++
		}
	}
	err := m.store.AddSandbox(ctx, b, most)
	switch _, there := m.codebases[b.CodebaseID]; {
	case !there:
		wantKind(rt, err, errdefs.NotFound)
	case most > 0 && owned >= most:
		wantKind(rt, err, errdefs.Exhausted)
	case clashes(m.sandboxes, b):
		wantKind(rt, err, errdefs.Exists)
	default:
		must(rt, err)
		m.sandboxes[b.ID] = b
	}
}

func (m *model) removeSandbox(rt *rapid.T) {
	key := id.Sandbox("sb_" + ids.Draw(rt, "id"))
	err := m.store.RemoveSandbox(ctx, key)
	if _, there := m.sandboxes[key]; !there {
		wantKind(rt, err, errdefs.NotFound)
		return
	}
	must(rt, err)
	delete(m.sandboxes, key)
}

func (m *model) replace(rt *rapid.T) {
	all := rapid.SliceOfN(rapid.Custom(m.drawSandbox), 0, 3).Draw(rt, "all")
	want, twice := map[id.Sandbox]store.Sandbox{}, false
	for _, b := range all {
		twice = twice || clashes(want, b)
		want[b.ID] = b
	}
	err := m.store.ReplaceSandboxes(ctx, all)
	if twice {
		wantKind(rt, err, errdefs.Exists)
		return
	}
	must(rt, err)
	m.sandboxes = want
}

// compare reads everything, by any filter and page size, and one by one.
func (m *model) compare(rt *rapid.T) {
	size := rapid.IntRange(1, 5).Draw(rt, "page size")
	owner := rapid.OneOf(rapid.Just(""), owners).Draw(rt, "owner filter")
	codebases := pages(rt, size, func(p store.Page) ([]store.Codebase, string, error) {
		return m.store.Codebases(ctx, store.CodebaseFilter{OwnerID: owner}, p)
	})
	want := sorted(m.codebases, func(c store.Codebase) bool { return owner == "" || c.OwnerID == owner }, func(a, b store.Codebase) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	if !slices.Equal(want, codebases) {
		rt.Fatalf("codebases of %q: got %v, want %v", owner, codebases, want)
	}

	of := id.Codebase(rapid.OneOf(rapid.Just(""), rapid.Just("cb_0000000000000001")).Draw(rt, "codebase filter"))
	sandboxes := pages(rt, size, func(p store.Page) ([]store.Sandbox, string, error) {
		return m.store.Sandboxes(ctx, store.SandboxFilter{OwnerID: owner, CodebaseID: of}, p)
	})
	wanted := sorted(m.sandboxes, func(b store.Sandbox) bool {
		return (owner == "" || b.OwnerID == owner) && (of == "" || b.CodebaseID == of)
	}, func(a, b store.Sandbox) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	if !slices.Equal(wanted, sandboxes) {
		rt.Fatalf("sandboxes of %q and %q: got %v, want %v", owner, of, sandboxes, wanted)
	}
	for key, want := range m.sandboxes {
		if got, err := m.store.Sandbox(ctx, key); err != nil || got != want {
			rt.Fatalf("sandbox %s: got %v, %v, want %v", key, got, err, want)
		}
	}
}

func pages[T any](rt *rapid.T, size int, list func(store.Page) ([]T, string, error)) []T {
	var all []T
	for page := (store.Page{Size: size}); ; {
		some, next, err := list(page)
		must(rt, err)
		all = append(all, some...)
		if next == "" {
			return all
		}
		page.Token = next
	}
}

func sorted[K comparable, V any](all map[K]V, keep func(V) bool, order func(a, b V) int) []V {
	var kept []V
	for v := range maps.Values(all) {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	slices.SortFunc(kept, order)
	return kept
}

package board_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/board"
)

// modelLock is a path that a holder has, as the model knows it.
type modelLock struct {
	holder int
	path   string
	until  time.Time // zero: no end
}

// modelWait is a request that waits.
type modelWait struct {
	holder int
	paths  []string
	until  time.Duration
}

// model is a table of locks in its simplest form.
type model struct {
	now   time.Time
	locks []modelLock
	waits []modelWait
	dead  map[int]bool
}

func touches(a, b string) bool {
	return a == "/" || b == "/" || a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// free reports whether a holder can have the paths, when these requests come first.
func (m *model) free(holder int, paths []string, first []modelWait) bool {
	for _, p := range paths {
		for _, l := range m.locks {
			if l.holder != holder && touches(l.path, p) {
				return false
			}
		}
		for _, w := range first {
			for _, q := range w.paths {
				if w.holder != holder && touches(p, q) {
					return false
				}
			}
		}
	}
	return true
}

func (m *model) take(holder int, paths []string, lasts time.Duration) {
	m.locks = slices.DeleteFunc(m.locks, func(l modelLock) bool { return l.holder == holder && slices.Contains(paths, l.path) })
	for _, p := range paths {
		l := modelLock{holder: holder, path: p}
		if lasts > 0 {
			l.until = m.now.Add(lasts)
		}
		m.locks = append(m.locks, l)
	}
}

func (m *model) prune() {
	m.locks = slices.DeleteFunc(m.locks, func(l modelLock) bool {
		return m.dead[l.holder] || !l.until.IsZero() && !m.now.Before(l.until)
	})
	m.waits = slices.DeleteFunc(m.waits, func(w modelWait) bool { return m.dead[w.holder] })
}

func (m *model) waiting(holder int) bool {
	return slices.ContainsFunc(m.waits, func(w modelWait) bool { return w.holder == holder })
}

func (m *model) holds(holder int) bool {
	return slices.ContainsFunc(m.locks, func(l modelLock) bool { return l.holder == holder })
}

// has is what the model and the table must agree about.
func (m *model) has() string {
	var list []string
	for _, l := range m.locks {
		list = append(list, fmt.Sprint(l.holder, " ", l.path))
	}
	slices.Sort(list)
	for _, w := range m.waits {
		list = append(list, fmt.Sprint("waits ", w.holder))
	}
	return strings.Join(list, "\n")
}

func hasOf(t *board.Table) string {
	var list []string
	for _, l := range t.Locks {
		list = append(list, fmt.Sprint(l.PID, " /", l.Path))
	}
	slices.Sort(list)
	for _, w := range t.Waiting {
		list = append(list, fmt.Sprint("waits ", w.PID))
	}
	return strings.Join(list, "\n")
}

func holder(i int) board.Holder { return board.Holder{Name: fmt.Sprint("s", i), PID: i} }

// TestLocksAgainstAModel compares random requests, waits, ends and deaths with a model. In each
// state no two holders have overlapping paths, and who waits has nothing.
func TestLocksAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{now: time.Unix(1_000_000, 0), dead: map[int]bool{}}
		var table board.Table
		alive := func(h board.Holder) bool { return !m.dead[h.PID] }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			who := rapid.IntRange(1, 4).Draw(t, "who")
			texts := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"/", "/a", "/a/b", "/a/b/c", "/ab", "/d"}), 1, 3, rapid.ID[string]).Draw(t, "paths")
			r := board.Request{For: time.Duration(rapid.IntRange(0, 5).Draw(t, "for")) * time.Second}
			for _, text := range texts {
				r.Paths = append(r.Paths, vpath.Path(text))
			}
			m.prune()
			table.Prune(m.now, alive)
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0: // time passes
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "seconds")) * time.Second)
			case 1: // a run ends, and its sandbox is started again
				m.dead[who] = true
				m.prune()
				table.Prune(m.now, alive)
				delete(m.dead, who)
			case 2:
				path := texts[0]
				table.Release(holder(who), func(l board.Lock) bool { return "/"+l.Path == path })
				m.locks = slices.DeleteFunc(m.locks, func(l modelLock) bool { return l.holder == who && l.path == path })
			case 3:
				_, err := table.Wait(holder(who), r, m.now)
				may := !m.waiting(who) && !m.holds(who)
				if (err == nil) != may {
					t.Fatalf("wait: %v, want %v", err, may)
				}
				if may {
					m.waits = append(m.waits, modelWait{who, texts, r.For})
				}
			case 4:
				table.Withdraw(holder(who))
				m.waits = slices.DeleteFunc(m.waits, func(w modelWait) bool { return w.holder == who })
			default:
				ticket, blocker, err := table.Acquire(holder(who), r, m.now)
				may := !m.waiting(who) && m.free(who, texts, m.waits)
				if (ticket != 0) != may || may && (blocker != nil || err != nil) || !may && blocker == nil && !errdefs.Is(err, errdefs.Precondition) {
					t.Fatalf("acquire: ticket %d, %v, %v, want %v", ticket, blocker, err, may)
				}
				if may {
					m.take(who, texts, r.For)
				}
			}
			// Whoever waits looks.
			for range 4 {
				for i := 1; i <= 4; i++ {
					at := slices.IndexFunc(m.waits, func(w modelWait) bool { return w.holder == i })
					may := at >= 0 && m.free(i, m.waits[at].paths, m.waits[:at])
					if table.Promote(holder(i), m.now) != may {
						t.Fatalf("promote %d: want %v", i, may)
					}
					if may {
						w := m.waits[at]
						m.waits = slices.Delete(m.waits, at, at+1)
						m.take(i, w.paths, w.until)
					}
				}
			}
			if got, want := hasOf(&table), m.has(); got != want {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			for _, a := range m.locks {
				for _, b := range m.locks {
					if a.holder != b.holder && touches(a.path, b.path) {
						t.Fatalf("%v and %v overlap", a, b)
					}
				}
				if m.waiting(a.holder) {
					t.Fatalf("%d waits and has %s: two such could wait for each other", a.holder, a.path)
				}
			}
		}
	})
}

// TestTooManyLocksAreRefused checks the bounds.
func TestTooManyLocksAreRefused(t *testing.T) {
	many := board.Request{}
	for i := range board.MaxPaths + 1 {
		many.Paths = append(many.Paths, vpath.Path(fmt.Sprint("/", i)))
	}
	if err := many.Check(); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("too many paths: %v", err)
	}
	for name, r := range map[string]board.Request{
		"no path": {}, "a negative time": {Paths: []vpath.Path{"/a"}, For: -1},
		"a long path": {Paths: []vpath.Path{vpath.Path("/" + strings.Repeat("x", 5000))}},
	} {
		if err := r.Check(); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var table board.Table
	for i := range board.MaxHeld + 1 {
		_, _, err := table.Acquire(holder(1), board.Request{Paths: []vpath.Path{vpath.Path(fmt.Sprint("/", i))}}, time.Now())
		if full := i >= board.MaxHeld; errdefs.Is(err, errdefs.Exhausted) != full {
			t.Fatalf("lock %d: %v", i, err)
		}
	}
}

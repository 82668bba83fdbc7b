package sandbox

import (
	"io"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/gitindex"
	"github.com/agentfense/agentfense/internal/ignore"
	"github.com/agentfense/agentfense/internal/vpath"
)

// gitIgnored knows which directories git ignores: by the source's .gitignore at
// the root, with nothing below that the source's index has. The sandbox's own
// .gitignore and index do not count: a command could hide its changes by them.
type gitIgnored struct {
	work     *work
	read     bool
	patterns *ignore.Matcher     // nil: git ignores nothing
	tracked  map[vpath.Path]bool // directories with a tracked file below
}

// has reports whether git ignores the directory dir.
func (g *gitIgnored) has(dir vpath.Path) bool {
	if !g.read {
		g.read = true
		g.load()
	}
	return g.patterns != nil && !g.tracked[dir] && g.patterns.Excludes(dir, true)
}

func (g *gitIgnored) load() {
	f, err := g.work.stack.OpenSource(vpath.Root.Child(ignore.Names[0]))
	if err != nil {
		return
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, ignore.MaxBytes+1))
	if err != nil || len(text) > ignore.MaxBytes {
		return
	}
	x := g.work.sourceIndex(vpath.Root.Child(".git").Child("index"))
	patterns, err := ignore.New(string(text))
	if err != nil || x == nil {
		return
	}
	g.patterns, g.tracked = patterns, map[vpath.Path]bool{}
	x.Entries(func(e gitindex.Entry) {
		p, ok := trackedPath(vpath.Root, e.Path)
		for ; ok && !g.tracked[p]; p = p.Dir() {
			g.tracked[p] = true
			if p.IsRoot() {
				break
			}
		}
	})
}

func isAbsent(err error) bool { return fault.Is(err, fault.NotFound) }

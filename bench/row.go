package main

import (
	"regexp"
	"strings"
)

// A row is one line of the table: a workload and what is asked of it.
type row struct {
	ID    string // for --run and JSON, stable
	Group string
	Title string
	Bound bound
	Unit  unit

	// The workload, done inside a place by the name it has in works.
	Work   string
	Mode   mode
	Cold   bool     // no untimed pass before
	Passes int      // at most so many timed passes a round; the sample is their median
	Dirty  []string // subtrees the workload changes, put back where a place does not do so itself
	Needs  []string // subtrees it needs
	// Scratch are the directories that are scratch directories in a sandbox.
	Scratch []string
	InMount bool // a sandbox has the data as a mount, and an empty workspace
	Mounts  int  // how many more mounts a sandbox has
	Layers  int  // of a sandbox in which all of the small files are changed; 0: none is

	// Host, instead of Work, is measured from outside.
	Host      hostMeasure
	Floor     bool // also measured in the place floor
	MaxRounds int  // 0 = all
}

type mode int

const (
	live  mode = iota // in a session shared by all live rows of a round: caches are warm
	fresh             // in a session of its own, nothing changed yet
)

// Groups of rows.
const (
	groupRead    = "read"
	groupWrite   = "write"
	groupTools   = "tools"
	groupScratch = "scratch directories"
	groupStart   = "start"
	groupMemory  = "memory"
	groupStates  = "changes and snapshots"
)

// groupOrder is the order they are printed in.
var groupOrder = []string{groupRead, groupWrite, groupTools, groupScratch, groupStart, groupStates, groupMemory}

// Sizes of the workloads. Titles name them, so change both.
const (
	manyFiles   = 10_000
	manyDirs    = 100
	needleEvery = 100
	flatFiles   = 1_000
	flatRepeats = 20
	bigBytes    = 64 << 20
	randomReads = 10_000
	onceFiles   = 300
	createFiles = 1_000
	entryFiles  = 500
	tarFiles    = 1_000
	archives    = 10
	npmPackages = 300
	wheels      = 23
	repoFiles   = 3_000
	repoNew     = 200
	repoEdited  = 100
	moreMounts  = 4
	modulePkgs  = 20
	walkedFiles = 100_000
)

// likeNative is what a warm read may cost.
var likeNative = bound{Ratio: 1.5, OrOverlay: true}

// allRows is the table. The first-touch row comes first: it must be the first
// thing done through a live session.
var allRows = []row{
	{
		ID: "grep-first", Group: groupRead, Title: "grep -r, 10,000 files, first touch", Bound: bound{Ratio: 4},
		Work: "grep", Cold: true, Passes: 1, Needs: []string{treeMany},
	},
	{
		ID: "grep-warm", Group: groupRead, Title: "grep -r, 10,000 files, warm", Bound: likeNative,
		Work: "grep", Passes: 5, Needs: []string{treeMany},
	},
	{
		ID: "open-read", Group: groupRead, Title: "open+read, 10,000 files", Bound: likeNative,
		Work: "open-read", Passes: 5, Needs: []string{treeMany},
	},
	{
		ID: "stat", Group: groupRead, Title: "stat, 10,000 files", Bound: likeNative,
		Work: "stat", Passes: 5, Needs: []string{treeMany},
	},
	{
		ID: "readdir", Group: groupRead, Title: "readdir of 1,000, 20 times", Bound: likeNative,
		Work: "readdir", Passes: 5, Needs: []string{treeFlat},
	},
	{
		ID: "walk", Group: groupRead, Title: "walk with lstat, 10,000 files", Bound: likeNative,
		Work: "walk", Passes: 5, Needs: []string{treeMany},
	},
	{
		ID: "find", Group: groupRead, Title: "find -size, 10,000 files", Bound: likeNative,
		Work: "find", Passes: 5, Needs: []string{treeMany},
	},
	{
		ID: "read-seq", Group: groupRead, Title: "sequential read, 64 MiB", Bound: bound{Ratio: 1.5},
		Work: "read-seq", Passes: 5, Needs: []string{treeBig},
	},
	{
		ID: "read-random", Group: groupRead, Title: "random 4 KiB reads, 10,000",
		Work: "read-random", Passes: 5, Needs: []string{treeBig},
	},
	{
		ID: "read-mmap", Group: groupRead, Title: "mmap read, 64 MiB",
		Work: "read-mmap", Passes: 5, Needs: []string{treeBig},
	},
	{
		ID: "git-status", Group: groupTools, Title: "git status, 3,000 files", Bound: likeNative,
		Work: "git-status", Passes: 5, Needs: []string{treeRepo},
	},

	{
		ID: "mount-read", Group: groupRead, Title: "open+read, 10,000 files in a mount", Bound: likeNative,
		Work: "open-read", Mode: fresh, Passes: 5, Needs: []string{treeMany}, InMount: true,
	},
	{
		ID: "own-read", Group: groupRead, Title: "open+read, 10,000 files, own session", Bound: likeNative,
		Work: "open-read", Mode: fresh, Passes: 5, Needs: []string{treeMany},
	},
	{
		ID: "mounts-read", Group: groupRead, Title: "open+read, own session, 4 more mounts", Bound: bound{Ratio: 1.03, Of: "own-read"},
		Work: "open-read", Mode: fresh, Passes: 5, Needs: []string{treeMany}, Mounts: moreMounts,
	},

	{
		ID: "create", Group: groupWrite, Title: "create, 1,000 files of 1 KiB", Bound: bound{Ratio: 3},
		Work: "create", Mode: fresh, Passes: 2,
	},
	{
		ID: "append", Group: groupWrite, Title: "append to 300 source files", Bound: bound{Overlay: true},
		Work: "append", Mode: fresh, Cold: true, Passes: 1, Dirty: []string{onceDir("append")}, Needs: []string{treeOnce},
	},
	{
		ID: "overwrite", Group: groupWrite, Title: "overwrite 300 source files", Bound: bound{Overlay: true},
		Work: "overwrite", Mode: fresh, Cold: true, Passes: 1, Dirty: []string{onceDir("overwrite")}, Needs: []string{treeOnce},
	},
	{
		ID: "unlink", Group: groupWrite, Title: "unlink, 500 new files", Bound: bound{Ratio: 6},
		Work: "unlink", Mode: fresh, Passes: 2,
	},
	{
		ID: "unlink-source", Group: groupWrite, Title: "unlink, 300 source files", Bound: bound{Ratio: 6},
		Work: "unlink-source", Mode: fresh, Cold: true, Passes: 1, Dirty: []string{onceDir("unlink")}, Needs: []string{treeOnce},
	},
	{
		ID: "rename", Group: groupWrite, Title: "rename, 500 new files", Bound: bound{Ratio: 6},
		Work: "rename", Mode: fresh, Passes: 2,
	},
	{
		ID: "rename-source", Group: groupWrite, Title: "rename, 300 source files", Bound: bound{Overlay: true},
		Work: "rename-source", Mode: fresh, Cold: true, Passes: 1, Dirty: []string{onceDir("rename")}, Needs: []string{treeOnce},
	},
	{
		ID: "write-fsync", Group: groupWrite, Title: "write 64 MiB by 1 MiB, fsync", Bound: bound{Ratio: 1.5},
		Work: "write-fsync", Mode: fresh, Passes: 2,
	},
	{
		ID: "write-4k", Group: groupWrite, Title: "write 16 MiB by 4 KiB", Bound: bound{Ratio: 10},
		Work: "write-4k", Mode: fresh, Passes: 3,
	},

	{
		ID: "untar", Group: groupTools, Title: "untar, 1,000 files", Bound: bound{Ratio: 3},
		Work: "untar", Mode: fresh, Passes: 2, Needs: []string{treeTar},
	},
	{
		ID: "git-commit", Group: groupTools, Title: "git add+commit, 300 files", Bound: bound{Ratio: 4},
		Work: "git-commit", Mode: fresh, Cold: true, Passes: 1, Dirty: []string{treeRepo}, Needs: []string{treeRepo},
	},
	{
		ID: "go-build", Group: groupTools, Title: "go build, one file edited", Bound: bound{Ratio: 3},
		Work: "go-build", Mode: fresh, Passes: 3, Needs: []string{treeModule},
	},

	{
		ID: "scratch-untar", Group: groupScratch, Title: "tar x, 10,000 files", Bound: bound{Ratio: 1.15},
		Work: "untar-many", Mode: fresh, Passes: 2, Needs: []string{treeTar}, Scratch: []string{treeOut},
	},
	{
		ID: "scratch-rm", Group: groupScratch, Title: "rm -r, 10,000 files", Bound: bound{Ratio: 1.15},
		Work: "remove-many", Mode: fresh, Passes: 2, Needs: []string{treeTar}, Scratch: []string{treeOut},
	},
	{
		ID: "scratch-npm", Group: groupScratch, Title: "npm ci of 300 packages", Bound: bound{Ratio: 1.15},
		Work: "npm-ci", Mode: fresh, Passes: 1, Needs: []string{treePkgs}, Scratch: []string{treeOut, treeHome},
	},
	{
		ID: "scratch-pip", Group: groupScratch, Title: "pip install of 23 wheels", Bound: bound{Ratio: 1.15},
		Work: "pip-install", Mode: fresh, Passes: 1, Needs: []string{treePkgs}, Scratch: []string{treeOut, treeHome},
	},
	{
		ID: "scratch-build", Group: groupScratch, Title: "go build, one file edited", Bound: bound{Ratio: 1.15},
		Work: "go-build", Mode: fresh, Passes: 3, Needs: []string{treeModule}, Scratch: []string{treeGoCache, treeHome},
	},
	{
		ID: "scratch-cargo", Group: groupScratch, Title: "cargo build, 20 crates", Bound: bound{Ratio: 1.15},
		Work: "cargo-build", Mode: fresh, Passes: 1, Needs: []string{treeCrates}, Scratch: []string{treeOut, treeHome},
	},

	{
		ID: "layer-first", Group: groupStates, Title: "stat, 10,000 changed, first touch",
		Work: "stat", Mode: fresh, Cold: true, Passes: 1, Needs: []string{treeMany}, Layers: 1,
	},
	{
		ID: "layers-first", Group: groupStates, Title: "stat, changed in 10 layers, first touch",
		Work: "stat", Mode: fresh, Cold: true, Passes: 1, Needs: []string{treeMany}, Layers: deepLayers,
	},
	{
		ID: "layer-warm", Group: groupStates, Title: "stat, 10,000 changed, warm",
		Work: "stat", Mode: fresh, Passes: 5, Needs: []string{treeMany}, Layers: 1,
	},
	{
		ID: "layers-warm", Group: groupStates, Title: "stat, changed in 10 layers, warm", Bound: bound{Ratio: 1.2, Of: "layer-warm"},
		Work: "stat", Mode: fresh, Passes: 5, Needs: []string{treeMany}, Layers: deepLayers,
	},
	{
		ID: "diff-stat", Group: groupStates, Title: "diff --stat, 10,000 changed files", Bound: bound{Most: 1e9},
		Host: measureDiff, MaxRounds: 3, Needs: []string{treeMany},
	},
	{
		ID: "apply", Group: groupStates, Title: "apply, 10,000 new files; cp -a", Bound: bound{Ratio: 3},
		Host: measureApply, MaxRounds: 3, Needs: []string{treeMany},
	},
	{
		ID: "copy-durable", Group: groupStates, Title: "cp -a, syncfs, and rm -r of the original",
		Host: measureMoved, MaxRounds: 3, Needs: []string{treeMany},
	},
	{
		ID: "copy-staged", Group: groupStates, Title: "copy, syncfs, link, syncfs, and unlink",
		Host: measureStaged, MaxRounds: 3, Needs: []string{treeMany},
	},
	{
		ID: "snapshot", Group: groupStates, Title: "snapshot, 100,000 changed, above version", Bound: bound{Most: 5e6},
		Host: measureSnapshot, MaxRounds: 2,
	},
	{
		ID: "fork", Group: groupStates, Title: "fork, 100,000 changed, above create", Bound: bound{Most: 5e6},
		Host: measureFork, MaxRounds: 2,
	},
	{
		ID: "export", Group: groupStates, Title: "export, 1 GiB; sqlite3", Bound: bound{Ratio: 2},
		Host: measureExport, MaxRounds: 2,
	},

	{ID: "start", Group: groupStart, Title: "run -- true", Bound: bound{Most: 60e6}, Host: measureStart, Floor: true},
	{ID: "version", Group: groupStart, Title: "the binary's own start (version)", Host: measureVersion},
	{ID: "exec", Group: groupStart, Title: "exec NAME -- true, above its own start", Bound: bound{Most: 10e6}, Host: measureExec},
	{ID: "agent-version", Group: groupStart, Title: "claude --version", Bound: bound{More: 60e6}, Host: measureAgentVersion, Floor: true, MaxRounds: 3},
	{ID: "agent-start", Group: groupStart, Title: "claude, until it asks its model", Bound: bound{Ratio: 1.1}, Host: measureAgentStart, Floor: true, MaxRounds: 3},
	{ID: "lock", Group: groupStart, Title: "lock NAME PATH beside 8 sandboxes, above its own start", Bound: bound{Most: 2e6}, Host: measureLock, MaxRounds: 3},
	{ID: "lock-echo", Group: groupStart, Title: "8 processes that only answer: the limit of lock", Host: measureEcho, MaxRounds: 3},
	{ID: "message", Group: groupStart, Title: "board post, until a reader has it, above its own start", Bound: bound{Most: 2e6}, Host: measureMessage, MaxRounds: 3},
	{ID: "inner", Group: groupStart, Title: "bwrap inside, above exec", Host: measureInner},

	{
		ID: "memory-idle", Group: groupMemory, Title: "idle sandbox, PSS", Bound: bound{Most: 10 << 20}, Unit: memoryBytes,
		Host: measureIdle, MaxRounds: 3, Needs: []string{treeWalked},
	},
	{
		ID: "memory-walked", Group: groupMemory, Title: "after walking 100,000 files, PSS", Bound: bound{Most: 40 << 20}, Unit: memoryBytes,
		Host: measureWalked, MaxRounds: 2, Needs: []string{treeWalked},
	},
	{
		ID: "memory-forks", Group: groupMemory, Title: "50 forks that run at once, PSS of each", Bound: bound{More: 12 << 20, Of: "memory-idle"}, Unit: memoryBytes,
		Host: measureForks, MaxRounds: 1, Needs: []string{treeMany},
	},
	{
		ID: "memory-export", Group: groupMemory, Title: "export of 1 GiB, most resident", Bound: bound{Most: 128 << 20}, Unit: memoryBytes,
		Host: measureExportMemory, MaxRounds: 1,
	},
}

func selectRows(match *regexp.Regexp) []row {
	var rows []row
	for _, r := range allRows {
		if match.MatchString(r.ID) {
			rows = append(rows, r)
		}
	}
	return rows
}

func rowIDs() string {
	var ids []string
	for _, r := range allRows {
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, " ")
}

func neededTrees(rows []row) map[string]bool {
	need := map[string]bool{}
	for _, r := range rows {
		for _, t := range r.Needs {
			need[t] = true
		}
	}
	return need
}

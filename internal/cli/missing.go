package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// shells are the programs whose exit code 127 means that a command of theirs was
// not found (POSIX, Shell Command Language, 2.8.2).
var shells = []string{"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"}

// sayMissing says where a program has to be that was not found inside.
func (e *env) sayMissing(sb backend.Sandbox, c backend.Command) {
	switch {
	case sb.Record.Runtime == record.RuntimeDocker || len(c.Argv) == 0:
	case sb.HostPrograms:
		e.sayMissingHere(sb, c)
	default:
		name := "a command was not found"
		if !slices.Contains(shells, filepath.Base(c.Argv[0])) {
			name = vpath.Escape(c.Argv[0]) + ": not found"
		}
		e.say("%s: a sandbox on a server has the programs below /usr of the server's host and those of its workspace, not yours; for others: --runtime docker --image IMAGE", name)
	}
}

// sayMissingHere says, of a shell that ended because it did not find a command, what
// of the caller's PATH is not shown inside: the program that its words name, or
// else the directories below the home.
func (e *env) sayMissingHere(sb backend.Sandbox, c backend.Command) {
	in := e.lookInside(sb.Record)
	if slices.ContainsFunc(variablesOf(sb, c), isPath) || !slices.Contains(shells, filepath.Base(c.Argv[0])) {
		return
	}
	words := wordsOf(c.Argv[1:])
	for _, word := range words {
		if e.toldPrograms[word] {
			return // this is what was told
		}
		if ours := e.ownProgram(word); ours != "" && !in.shows(ours) && findProgram(word, in.path, in.shows) == "" {
			e.sayProgram(sb.Record, word)
			return
		}
	}
	hasPath := func(word string) bool { return strings.Contains(word, "/") }
	if slices.Contains(c.Argv, "-c") && !slices.ContainsFunc(words, hasPath) {
		return // all that was to run is there to see
	}
	e.sayDirsOfPath(in)
}

// sayDirsOfPath says which directories of the caller's PATH below the home are
// not shown inside.
func (e *env) sayDirsOfPath(in *inside) {
	var dirs, programs []string
	for _, dir := range filepath.SplitList(e.getenv("PATH")) {
		dir = filepath.Clean(dir)
		if safefs.IsBelow(dir, in.home) && has(dir, ".") && !in.shows(dir) && !slices.Contains(dirs, dir) {
			dirs, programs = append(dirs, dir), append(programs, filepath.Join(dir, "program"))
		}
	}
	if len(dirs) > 0 {
		e.say("a command was not found; of your PATH, not shown inside: %s; to have what is there: %s",
			vpath.Escape(strings.Join(dirs, ", ")), e.flagsFor(in, programs...))
	}
}

// wordsOf splits what a shell is to run into words that may name a program.
func wordsOf(args []string) []string {
	return strings.FieldsFunc(strings.Join(args, " "), func(r rune) bool {
		return !strings.ContainsRune("./_-+@", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// flagsFor are the flags that bring programs of the host inside.
func (e *env) flagsFor(in *inside, programs ...string) string {
	var dirs, flags []string
	add := func(flag string) {
		if !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	for _, program := range programs {
		dirs = append(dirs, in.neededFor(program)...)
	}
	for _, dir := range outermost(dirs) {
		add("--mount " + shellWord(dir))
	}
	for _, program := range programs {
		for _, v := range in.variablesOf(program) {
			name, value, _ := strings.Cut(v, "=")
			add("--env " + name + "=" + shellWord(value))
		}
		if home := e.rustupHome(in); home != "" && isRustup(program) {
			add("--mount " + shellWord(home))
			add("--env RUSTUP_HOME=" + shellWord(home))
		}
	}
	return strings.Join(flags, " ")
}

// isRustup reports whether a program is rustup under another name, or lies
// beside it: rustup looks for the toolchain to run.
func isRustup(program string) bool {
	rustup := filepath.Join(filepath.Dir(program), "rustup")
	return sameFile(program, rustup) || !has(program, ".") && has(rustup, ".")
}

// rustupHome is where rustup has its toolchains, "" if nowhere. Inside, where the
// home is another, rustup is told by RUSTUP_HOME (its book, "Environment variables").
func (e *env) rustupHome(in *inside) string {
	home := e.getenv("RUSTUP_HOME")
	if !filepath.IsAbs(home) {
		home = filepath.Join(in.home, ".rustup")
	}
	if !has(home, "toolchains") {
		return ""
	}
	return filepath.Clean(home)
}

// sayRustup says how rustup finds its toolchains, if they are mounted and it is
// not told.
func (e *env) sayRustup(r record.Record, variables []string) {
	isSet := func(v string) bool { return v == "RUSTUP_HOME" || strings.HasPrefix(v, "RUSTUP_HOME=") }
	home := e.rustupHome(e.lookInside(r))
	if home == "" || r.Runtime == record.RuntimeDocker || slices.ContainsFunc(variables, isSet) {
		return
	}
	if slices.ContainsFunc(r.Mounts, func(m record.Mount) bool { return safefs.IsBelow(home, string(m.Target)) }) {
		e.say("rustup: looks for its toolchains in the home directory inside; to let it find yours: --env RUSTUP_HOME=%s", shellWord(home))
	}
}

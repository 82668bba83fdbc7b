// Package cli is the words on the screen: one file per verb.
//
// A verb's file holds its options, its flags and its run function, which asks a
// backend.Backend: this host or a server. What the verbs share is in relay.go (our
// streams to a command's), server.go (which backend, and how a server is found), exit.go
// (exit codes) and output.go (tables and JSON). stdout carries data only; everything said
// to the person goes to stderr.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// Main runs the command line args (without the program's name) and returns
// the process's exit code.
func Main(args []string) int {
	delayGC()
	return newEnv().main(args)
}

// firstGC lets the heap grow to 16 MiB before garbage is collected for the first time: most
// commands end before. Later the runtime's default counts, so that a command with much to remember
// needs no more memory than before.
const (
	firstGC = 400
	laterGC = 100
)

func delayGC() {
	debug.SetGCPercent(firstGC)
	first := new([64]byte)
	runtime.AddCleanup(first, func(percent int) { debug.SetGCPercent(percent) }, laterGC)
}

// main is Main in the surroundings e.
func (e *env) main(args []string) int {
	if len(args) > 0 && args[0] == launch.OwnerVerb {
		e.owner, args = true, args[1:]
	}
	e.args = args
	root := newRoot(e)
	root.SetArgs(args)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	verb, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return exitOK
	}
	if exit := exitError(0); errors.As(err, &exit) {
		return int(exit)
	}
	err = explainRequired(verb, explainExclusive(err))
	for line := range strings.SplitSeq(oneLine(err), "\n") { // errors of several names have one each
		e.say("%s", line)
	}
	return exitCode(err, runsInside(verb))
}

// oneLine keeps a terminal escape in an error's text from acting: every text
// may quote a name somebody else chose. Line breaks stay, they are ours.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(vpath.Escape(l), `\\`, `\`)
	}
	return strings.Join(lines, "\n")
}

// Root returns the command tree, for the generated reference of docs/.
func Root() *cobra.Command { return newRoot(newEnv()) }

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "agentfense",
		Short: "Run a command against a view of a directory that policy decides",
		Long: `agentfense runs a command that sees each path of a real directory as none
(absent), view (listed, not readable), read or write. What the command writes
goes to a copy-on-write delta that you review, apply or discard.

With --endpoint, or the variable AGENTFENSE_ENDPOINT, the verbs act on a server
(agentfense serve) in place of this host.`,
		Example: `  agentfense run --preset development --name fix -- make test
  agentfense diff fix
  agentfense apply fix
  agentfense run --endpoint https://build:9000 -- make test`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return runStart(cmd, e) },
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	root.Version = readVersion().String() // makes cobra print it for --version
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version")
	root.PersistentPreRunE = refuseEndpoint
	e.at.register(root.PersistentFlags())
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		hideEndpoint(cmd)
		help(cmd, args)
	})
	root.SetFlagErrorFunc(explainFlag)
	if verb := e.frequentVerb(); verb != nil {
		root.AddCommand(verb)
	} else {
		e.addVerbs(root)
	}
	e.explainArgs(root)
	if len(e.args) > 0 && strings.HasPrefix(e.args[0], cobra.ShellCompRequestCmd) {
		e.completeRest(root)
	}
	return root
}

// addVerbs adds all verbs.
func (e *env) addVerbs(root *cobra.Command) {
	root.AddCommand(
		newRun(e), newCreate(e), newExec(e), newShell(e),
		newLs(e), newInspect(e), newStop(e), newLogs(e), newRm(e), newPrune(e), newFiles(e),
		newReview(e), newDiff(e), newApply(e), newCommits(e), newDiscard(e), newUndo(e), newRedo(e), newHistory(e), newVerify(e), newSnapshot(e), newRestore(e), newFork(e), newMerge(e), newExport(e), newImport(e), newSQL(e),
		newInit(e), newPolicy(e), newProfile(e), newAudit(e), newCodebase(e), newServe(e), newMCP(e), newHook(e), newToken(e), newDoctor(e), newVersion(e), newAfterRun(e), newPending(e), newKeep(e), newHookApply(e), newSDK(e), newLock(e), newUnlock(e), newBoard(e),
	)
	root.AddGroup(&cobra.Group{ID: agentGroup, Title: "Agents:"})
	root.AddCommand(newAgents(e)...)
}

// frequentVerb returns the verb that the command line begins with, if programs often start it. It
// is then the only one, because making the flags of all others takes a fifth of a short command.
func (e *env) frequentVerb() *cobra.Command {
	if len(e.args) == 0 {
		return nil
	}
	frequent := map[string]func(*env) *cobra.Command{
		"run": newRun, "create": newCreate, "exec": newExec, "stop": newStop, "rm": newRm, "diff": newDiff, "apply": newApply,
		"snapshot": newSnapshot, "fork": newFork, "version": newVersion, "lock": newLock, "unlock": newUnlock, "board": newBoard,
	}
	if newVerb := frequent[e.args[0]]; newVerb != nil {
		return newVerb(e)
	}
	return nil
}

// runsInside reports whether verb runs a command inside, so that its exit code
// is the command's.
func runsInside(verb *cobra.Command) bool {
	return verb != nil && verb.Annotations[annotationInside] != ""
}

// annotationInside marks the verbs whose exit code is that of the command they
// run.
const annotationInside = "inside"

// env is what a verb finds around it.
type env struct {
	stdin, stdout, stderr *os.File
	getenv                func(string) string
	args                  []string // the command line
	owner                 bool     // we are what launch.RunAsOwner runs
	at                    endpointOptions
	parts                 *Parts          // nil: agentfense-server has them
	toldPrograms          map[string]bool // see sayProgram
}

func newEnv() *env {
	return &env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
}

// say tells the person one line on stderr.
func (e *env) say(format string, args ...any) {
	fmt.Fprintf(e.stderr, "agentfense: "+format+"\n", args...)
}

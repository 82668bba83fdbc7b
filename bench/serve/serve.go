// Package serve measures a server under load, what its calls take, and what the
// packages for Python and Go add to that.
//
// It starts `agentfense serve` with a state directory of its own and drives it
// as programs do, over gRPC and REST. Rows with a bound on a ratio measure both
// sides in turn within one run.
//
// When Run returns, also after an interrupt, it has ended and removed everything that it
// started: sandboxes, the server, the directory.
package serve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// Parts are what can be measured by itself: the rows of each, in the order in
// which they are measured.
var Parts = map[string][]row{"serve": serverRows, "python": sdkRows}

// Options are the flags.
type Options struct {
	Part        string // of Parts
	Dir         string // where the state directory is made
	Image       bool   // in a file system made for it, by whoever calls Run
	Binary      string // agentfense
	JSON        string // a file for the result
	Rows        *regexp.Regexp
	Rounds      int // of the calls that are measured one by one
	Sandboxes   int // of the row load
	Load        time.Duration
	DockerImage string // of the row docker; empty leaves it out
	Python      string // an interpreter that has what the Python package needs
}

// Defaults of the flags.
const (
	defaultRounds    = 40
	defaultSandboxes = 200
	defaultLoad      = time.Minute
)

// Run runs the benchmark; its table goes to stdout.
func Run(ctx context.Context, o Options, stdout io.Writer) error {
	err := measure(ctx, o, stdout)
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), notOnlyInterrupted(err))
	}
	return err
}

// notOnlyInterrupted is what could not be cleared away.
func notOnlyInterrupted(err error) error {
	if left := (leftover{}); errors.As(err, &left) {
		return left
	}
	return nil
}

// Parse reads the flags of a part. Errors: flag.ErrHelp.
func Parse(part string, args []string) (Options, error) {
	o := Options{Part: part, Sandboxes: defaultSandboxes, Load: defaultLoad}
	var rows string
	f := flag.NewFlagSet("bench "+part, flag.ContinueOnError)
	f.StringVar(&o.Dir, "dir", "/var/tmp", "directory below which the server's state is made")
	f.BoolVar(&o.Image, "image", false, "make a fresh ext4 in a file below --dir and measure there (root); not for docker, which cannot see it")
	f.StringVar(&o.Binary, "agentfense", "", "the agentfense binary (default bin/agentfense, then the PATH)")
	f.StringVar(&o.JSON, "json", "", "write the result as JSON to this `file` too")
	f.StringVar(&rows, "run", "", "measure only the rows whose id matches this `regexp`")
	f.IntVar(&o.Rounds, "rounds", defaultRounds, "how often each call is measured")
	if part == "python" {
		f.StringVar(&o.Python, "python", "bin/python/test/bin/python", "the interpreter")
	} else {
		f.IntVar(&o.Sandboxes, "sandboxes", defaultSandboxes, "sandboxes alive at once in the row load")
		f.DurationVar(&o.Load, "for", defaultLoad, "how long the row load lasts")
		f.StringVar(&o.DockerImage, "docker-image", "", "image of the row docker (default: it is left out)")
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.Rounds <= 0 || o.Sandboxes <= 0 || o.Load <= 0:
		return o, errors.New("--rounds, --sandboxes and --for must be positive")
	}
	var err error
	if o.Rows, err = regexp.Compile(rows); err != nil {
		return o, fmt.Errorf("--run: %w", err)
	}
	return o, nil
}

// A row measures one thing and returns its figures.
type row struct {
	ID      string
	Title   string
	Measure func(ctx context.Context, b *bench) ([]figure, error)
}

// serverRows begin with what others disturb.
var serverRows = []row{
	{"life", "create, start, exec true, destroy", measureLife},
	{"exec", "Exec of true in a running sandbox", measureExec},
	{"session-exec", "SessionExec of true", measureSessionExec},
	{"first-byte", "ExecStream, until the first byte", measureFirstByte},
	{"sync", "Exec with 3,000 changed files to carry over", measureSync},
	{"upload", "upload of small files, a call for each", measureUpload},
	{"upload-tree", "upload of small files in one call", measureUploadTree},
	{"stream", "1 GB of output over gRPC", measureStream},
	{"stream-rest", "1 GB of output over REST", measureStreamREST},
	{"docker", "create, start, exec true, destroy on docker, and docker run --rm", measureDocker},
	{"load", "sandboxes alive at once, each doing an exec a second", measureLoad},
}

func rowIDs(rows []row) string {
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, " ")
}

// bench is what the rows share.
type bench struct {
	Options
	*server
	say func(string)
}

// errNotHere says that a row cannot be measured on this machine, and why.
type errNotHere string

func (e errNotHere) Error() string { return string(e) }

// measure runs the rows that are wanted.
func measure(ctx context.Context, o Options, stdout io.Writer) (err error) {
	var rows []row
	for _, r := range Parts[o.Part] {
		if o.Rows.MatchString(r.ID) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("--run %q: no such row; the rows are %s", o.Rows, rowIDs(Parts[o.Part]))
	}
	res := newResult(o)
	s, err := startServer(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b := &bench{Options: o, server: s, say: func(what string) { fmt.Fprintln(os.Stderr, "bench:", what) }}
	for _, r := range rows {
		b.say(r.ID + ": " + r.Title)
		figures, err := r.Measure(ctx, b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		res.add(r, figures, err)
	}
	if o.JSON != "" {
		if err := res.writeJSON(o.JSON); err != nil {
			return err
		}
	}
	return res.write(stdout)
}

// Command bench measures what a view costs, side by side with the alternatives.
//
// It runs one set of workloads in several places: directly on the native file
// system, in an agentfense sandbox, on the kernel's overlayfs, in a plain
// bubblewrap bind, and on the peers it finds on the PATH (fuse-overlayfs,
// agentfs). The places take turns row by row, so that a slow minute of the
// machine hits all of them; each number is the median of the rounds, and each
// ratio the median of the ratios to native within one round.
//
// The loops run inside the place, in this very program re-executed there
// ("bench __serve"), and time themselves: what it costs to enter a place is in
// its own rows only.
//
// It is a benchmark and not a test: it exits 0 whether the bounds are met or
// not. docs/benchmarks.md says what each row does and how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/agentfense/agentfense/bench/egress"
	"github.com/agentfense/agentfense/bench/serve"
)

type options struct {
	Dir    string // where the data lives; the file system measured
	Binary string // agentfense
	JSON   string // file for the machine-readable result
	Rows   *regexp.Regexp
	Rounds int
	Peers  bool
	Image  bool // in a file system made for it
}

// Defaults of --rounds. Fewer than three rounds give no median worth the name,
// which is why --quick says so in its output.
const (
	defaultRounds = 5
	quickRounds   = 2
)

func main() {
	if len(os.Args) > 1 && hidden[os.Args[1]] != nil {
		end(hidden[os.Args[1]](os.Args[2:]))
		return
	}
	if len(os.Args) > 1 && serve.Parts[os.Args[1]] != nil {
		end(measureServer(os.Args[1], os.Args[2:]))
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "egress" {
		if err := egress.Run(os.Args[2:]); !errors.Is(err, flag.ErrHelp) {
			end(err)
		}
		return
	}
	o, err := parseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	end(perform(o))
}

// end ends the program if there was an error.
func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// untilStopped is done when the person stops the run.
func untilStopped() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// measureServer is the benchmark of the server, or of what programs use it by.
func measureServer(part string, args []string) error {
	o, err := serve.Parse(part, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, stop := untilStopped()
	defer stop()
	if o.Image {
		return onImage(ctx, o.Dir, append([]string{part}, args...))
	}
	return serve.Run(ctx, o, os.Stdout)
}

// perform runs the benchmark until it is done or the person stops it.
func perform(o options) error {
	ctx, stop := untilStopped()
	defer stop()
	if o.Image {
		return onImage(ctx, o.Dir, os.Args[1:])
	}
	return bench(ctx, o, os.Stdout)
}

// hidden are the verbs under which the program runs inside a place.
var hidden = map[string]func(args []string) error{
	"__serve":   serveMain,
	"__overlay": overlayMain,
	"__image":   imageMain,
	floorVerb:   floorMain,
	echoVerb:    echoMain,
	changeVerb:  changeMain,

	egress.Verb:       egress.Measure,
	egress.ClientVerb: egress.Client,
	egress.RelayVerb:  egress.Relay,
}

func parseOptions(args []string, usage io.Writer) (options, error) {
	var o options
	var rows string
	var quick bool
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.Dir, "dir", "/var/tmp", "directory below which the data is made: its file system is what is measured")
	f.BoolVar(&o.Image, "image", false, "make a fresh ext4 in a file below --dir and measure there (root)")
	f.StringVar(&o.Binary, "agentfense", "", "the agentfense binary (default bin/agentfense, then the PATH)")
	f.StringVar(&o.JSON, "json", "", "write the result as JSON to this `file` too")
	f.StringVar(&rows, "run", "", "measure only the rows whose id matches this `regexp`")
	f.IntVar(&o.Rounds, "rounds", 0, fmt.Sprintf("rounds (default %d, with --quick %d)", defaultRounds, quickRounds))
	f.BoolVar(&quick, "quick", false, "two rounds and no peers")
	f.BoolVar(&o.Peers, "peers", true, "measure fuse-overlayfs and agentfs too, when they are on the PATH")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var err error
	if o.Rows, err = regexp.Compile(rows); err != nil {
		return o, fmt.Errorf("--run: %w", err)
	}
	if o.Rounds < 0 {
		return o, fmt.Errorf("--rounds %d: must be positive", o.Rounds)
	}
	if o.Rounds == 0 {
		o.Rounds = defaultRounds
		if quick {
			o.Rounds = quickRounds
		}
	}
	o.Peers = o.Peers && !quick
	return o, nil
}

// bench is the untilStopped run, whose table goes to stdout. Whatever it made is gone
// when it returns.
func bench(ctx context.Context, o options, stdout io.Writer) (err error) {
	rows := selectRows(o.Rows)
	if len(rows) == 0 {
		return fmt.Errorf("--run %q: no such row; the rows are %s", o.Rows, rowIDs())
	}
	d, err := newDisk(o.Dir)
	if err != nil {
		return err
	}
	say := newProgress(os.Stderr)
	defer func() {
		say.Say("removing the data")
		err = errors.Join(err, d.Remove())
		say.Done()
	}()
	if err := d.Generate(ctx, neededTrees(rows), say.Say); err != nil {
		return interrupted(ctx, err)
	}
	places, notes := openPlaces(ctx, d, o, say.Say)
	defer func() { err = errors.Join(err, closePlaces(places)) }()
	switch floor, err := newFloor(d, rows); {
	case err != nil:
		notes = append(notes, fmt.Sprintf("%s: %v", floorName, err))
	case floor != nil:
		places = append(places, floor)
	}

	r := runner{disk: d, places: places, rows: rows, rounds: o.Rounds, say: say.Say}
	res, err := r.Run(ctx)
	say.Done()
	if err != nil {
		return interrupted(ctx, err)
	}
	res.Notes = append(notes, res.Notes...)
	if o.JSON != "" {
		if err := writeJSON(o.JSON, res); err != nil {
			return err
		}
	}
	return writeTable(stdout, res)
}

// interrupted says plainly that the person stopped the run: the errors of the
// workloads that died with it are of no interest.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

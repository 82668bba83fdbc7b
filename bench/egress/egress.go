// Package egress measures what a network of named hosts costs: connections, their throughput, the
// start of a sandbox and the memory of the process.
//
// It makes a network of its own, with a server behind one link, and asks that server from a
// sandbox and from beside it, in turn. Each ratio and difference is the median of the rounds'.
package egress

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/bench/host"
)

const defaultRounds = 9

// Options are the flags.
type Options struct {
	Binary string // agentfense
	Rounds int
	Run    *regexp.Regexp // rows whose title matches
}

// Parse reads the flags. Errors: flag.ErrHelp.
func Parse(args []string) (Options, error) {
	var o Options
	f := flag.NewFlagSet("bench egress", flag.ContinueOnError)
	f.StringVar(&o.Binary, "agentfense", "", "the agentfense binary (default bin/agentfense, then the PATH)")
	run := f.String("run", "", "only rows whose title matches this regular expression")
	f.IntVar(&o.Rounds, "rounds", defaultRounds, "how often each row is measured")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.Rounds <= 0 {
		return o, errors.New("--rounds must be positive")
	}
	var err error
	if o.Run, err = regexp.Compile(*run); err != nil {
		return o, fmt.Errorf("--run: %w", err)
	}
	if len(o.rows()) == 0 {
		return o, fmt.Errorf("--run %q: no row has such a title", *run)
	}
	return o, nil
}

// Run measures in namespaces of its own. It needs root.
func Run(args []string) error {
	if _, err := Parse(args); err != nil {
		return err
	}
	return enter(args)
}

// Measure is Run within them.
func Measure(args []string) (err error) {
	o, err := Parse(args)
	if err != nil {
		return err
	}
	if o.Binary, err = host.FindAgentfense(o.Binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/var/tmp", "agentfense-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	secure, plain, packages, err := listen(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount("/etc/hosts", unix.MNT_DETACH)) }()
	cert, err := certificate()
	if err != nil {
		return err
	}
	go serve(overTLS(secure, cert))
	go serve(plain)
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		return err
	}
	if err := registry(overTLS(packages, cert), source); err != nil {
		return err
	}
	b := &bench{Options: o, dir: dir}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(); err != nil {
		return err
	}
	return b.measure(os.Stdout)
}

package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/agentfense/agentfense/bench/host"
)

func overTLS(l net.Listener, cert tls.Certificate) net.Listener {
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
}

// client is a client that runs.
type client struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	// said is its standard error, shown if it fails.
	said bytes.Buffer
}

func start(cmd *exec.Cmd) (*client, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &client{cmd: cmd, in: in, out: bufio.NewReader(out)}
	cmd.Stderr = &c.said
	return c, cmd.Start()
}

// ask returns the nanoseconds of a connection that gets so many bytes, the median of times.
func (c *client) ask(port string, size int64, times int) (float64, error) {
	if _, err := fmt.Fprintln(c.in, port, size, times); err != nil {
		return 0, err
	}
	var took float64
	_, err := fmt.Fscanln(c.out, &took)
	return took, err
}

func (c *client) close() error {
	c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("client: %w: %s", err, c.said.String())
	}
	return nil
}

// bench is what is measured: a client in a sandbox and one beside it.
type bench struct {
	Options
	dir            string
	inside, beside *client
}

// allow are the rules of the sandbox.
var allow = []string{"--allow-net", serverName, "--allow-net", serverName + ":" + plainPort + ",raw"}

func (b *bench) agentfense(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), b.Binary, args...)
	cmd.Dir = filepath.Join(b.dir, "source")
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+filepath.Join(b.dir, "home"))
	return cmd
}

// run runs a verb to its end.
func (b *bench) run(args ...string) error {
	if out, err := b.agentfense(args...).CombinedOutput(); err != nil {
		return fmt.Errorf("agentfense %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

const name = "bench"

func (b *bench) open() error {
	if err := os.Mkdir(filepath.Join(b.dir, "source"), 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"run", "--name", name, "--mount", self + ":/opt/bench"}, allow...)
	if b.inside, err = start(b.agentfense(append(args, "--", "/opt/bench", ClientVerb)...)); err != nil {
		return err
	}
	b.beside, err = start(exec.CommandContext(context.Background(), self, ClientVerb))
	return err
}

func (b *bench) close() error {
	var err error
	for _, c := range []*client{b.inside, b.beside} {
		if c != nil {
			err = errors.Join(err, c.close())
		}
	}
	return err
}

// A row is a line of the table.
type row struct {
	title   string
	asked   string
	measure func(b *bench) (beside, inside, compared float64, err error)
	format  func(v float64) string // of beside and inside
	compare func(v float64) string // of compared
	met     func(compared float64) bool
}

const (
	bigTransfer = 256 << 20 // bytes
	connections = 50        // for a sample
)

var rows = []row{
	{"throughput, one TLS connection", "≥ 0.80×", throughput(tlsPort), perSecond, ratio, func(v float64) bool { return v >= 0.8 }},
	{"throughput, one plain connection (raw)", "≥ 0.90×", throughput(plainPort), perSecond, ratio, func(v float64) bool { return v >= 0.9 }},
	{"a new TLS connection", "≤ +150 µs", connection(tlsPort), micros, difference, func(v float64) bool { return v <= 150e3 }},
	{"a new plain connection (raw)", "≤ +150 µs", connection(plainPort), micros, difference, func(v float64) bool { return v <= 150e3 }},
	{"start of run, without and with", "≤ +10000 µs", startOfRun, micros, difference, func(v float64) bool { return v <= 10e6 }},
	{"idle egress process, PSS", "≤ 8.0 MiB", idle, nil, mebibytes, func(v float64) bool { return v <= 8<<20 }},
}

func perSecond(v float64) string  { return fmt.Sprintf("%.0f MB/s", v/1e6) }
func ratio(v float64) string      { return fmt.Sprintf("%.2f×", v) }
func micros(v float64) string     { return fmt.Sprintf("%.0f µs", v/1e3) }
func difference(v float64) string { return fmt.Sprintf("%+.0f µs", v/1e3) }
func mebibytes(v float64) string  { return fmt.Sprintf("%.1f MiB", v/(1<<20)) }

func throughput(port string) func(b *bench) (float64, float64, float64, error) {
	return func(b *bench) (beside, inside, compared float64, err error) {
		beside, inside, err = b.both(port, bigTransfer, 1)
		beside, inside = bigTransfer/beside*1e9, bigTransfer/inside*1e9
		return beside, inside, inside / beside, err
	}
}

func connection(port string) func(b *bench) (float64, float64, float64, error) {
	return func(b *bench) (beside, inside, compared float64, err error) {
		beside, inside, err = b.both(port, 1, connections)
		return beside, inside, inside - beside, err
	}
}

func (b *bench) both(port string, size int64, times int) (beside, inside float64, err error) {
	if beside, err = b.beside.ask(port, size, times); err == nil {
		inside, err = b.inside.ask(port, size, times)
	}
	return beside, inside, err
}

func startOfRun(b *bench) (beside, inside, compared float64, err error) {
	once := func(flags ...string) (float64, error) {
		begin := time.Now()
		err := b.run(append(append([]string{"run", "--rm"}, flags...), "--", "true")...)
		return float64(time.Since(begin)), err
	}
	if beside, err = once(); err == nil {
		inside, err = once(allow...)
	}
	return beside, inside, inside - beside, err
}

// idle measures the process of a sandbox that has just started.
func idle(b *bench) (beside, inside, compared float64, err error) {
	const other = "idle"
	if err := b.run(append([]string{"run", "--detach", "--name", other}, allow...)...); err != nil {
		return 0, 0, 0, err
	}
	defer func() {
		err = errors.Join(err, b.run("stop", other), b.run("rm", "--force", other))
	}()
	procs, err := host.ReadProcesses()
	if err != nil {
		return 0, 0, 0, err
	}
	found := host.PIDs{}
	for pid, p := range procs {
		if is(pid, "__egress") && is(p.Parent, "__supervise") && is(p.Parent, filepath.Join(b.dir, "home")) && is(p.Parent, other) {
			found[pid] = true
		}
	}
	pss, err := found.PSS()
	return 0, 0, float64(pss), err
}

// is reports whether a process has that argument.
func is(pid int, arg string) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	return slices.Contains(strings.Split(string(text), "\x00"), arg)
}

// measure measures all rows in turn, so that a slow minute hits all of them.
func (b *bench) measure(w io.Writer) error {
	type samples struct{ beside, inside, compared []float64 }
	all := make([]samples, len(rows))
	for i := range b.Rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", i+1, b.Rounds)
		for k, r := range rows {
			beside, inside, compared, err := r.measure(b)
			if err != nil {
				return fmt.Errorf("%s: %w", r.title, err)
			}
			s := &all[k]
			s.beside, s.inside, s.compared = append(s.beside, beside), append(s.inside, inside), append(s.compared, compared)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tbeside\tin a sandbox\tcompared\tasked\tmet")
	for k, r := range rows {
		s := all[k]
		sides := "\t"
		if r.format != nil {
			sides = r.format(median(s.beside)) + "\t" + r.format(median(s.inside))
		}
		met := "NO"
		if compared := median(s.compared); r.met(compared) {
			met = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.title, sides, r.compare(median(s.compared)), r.asked, met)
	}
	fmt.Fprintf(t, "\nload average %.1f at the end\n", host.LoadAverage())
	return t.Flush()
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

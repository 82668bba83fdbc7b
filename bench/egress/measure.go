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

// ask returns the nanoseconds of a connection to host that gets so many bytes, the median of
// times.
func (c *client) ask(host, port string, size int64, times int) (float64, error) {
	if _, err := fmt.Fprintln(c.in, host, port, size, times); err != nil {
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

// bench is what is measured: a client in a sandbox, one beside it, and the empty relay.
type bench struct {
	Options
	dir                   string
	inside, beside, relay *client
}

// allow are the rules of the sandbox.
var allow = []string{"--allow-net", serverName, "--allow-net", serverName + ":" + plainPort + ",raw", "--allow-net", serverName + ":" + registryPort}

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
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"run", "--name", name, "--mount", self + ":/opt/bench"}, allow...)
	if b.inside, err = start(b.agentfense(append(args, "--", "/opt/bench", ClientVerb)...)); err != nil {
		return err
	}
	if b.beside, err = start(exec.CommandContext(context.Background(), self, ClientVerb)); err != nil {
		return err
	}
	b.relay, err = startRelay(self)
	return err
}

func (b *bench) close() error {
	var err error
	for _, c := range []*client{b.inside, b.beside, b.relay} {
		if c != nil {
			err = errors.Join(err, c.close())
		}
	}
	return err
}

// sample is one measurement: beside a sandbox, in it, and through the empty relay; 0 for what is
// not measured.
type sample struct{ beside, inside, relayed float64 }

// A row is a line of the table.
type row struct {
	title   string
	asked   string
	measure func(b *bench) (sample, error)
	format  func(v float64) string              // of beside and inside
	compare func(beside, other float64) float64 // of inside or relayed
	show    func(v float64) string              // of what compare returns
	met     func(compared float64) bool         // nil: nothing is asked
}

const (
	bigTransfer = 256 << 20 // bytes
	connections = 50        // for a sample
	manyConns   = 1000      // for a sample of processor time, which is counted in 10 ms
)

var rows = []row{
	{"throughput, one TLS connection", "≥ 0.80×", throughput(tlsPort), perSecond, quotient, ratio, func(v float64) bool { return v >= 0.8 }},
	{"throughput, one plain connection (raw)", "≥ 0.90×", throughput(plainPort), perSecond, quotient, ratio, func(v float64) bool { return v >= 0.9 }},
	{"a new TLS connection", "≤ +150 µs", connection(tlsPort), micros, rise, difference, func(v float64) bool { return v <= 150e3 }},
	{"a new plain connection (raw)", "≤ +150 µs", connection(plainPort), micros, rise, difference, func(v float64) bool { return v <= 150e3 }},
	{"processor time of the process between, a new plain connection", "-", processorTime, nil, second, micros, nil},
	{"npm ci of 100 packages, --net host and named", "≤ 1.15×", install(npmCI), millis, quotient, ratio, func(v float64) bool { return v <= 1.15 }},
	{"pip install of 100 packages, the same", "≤ 1.15×", install(pipInstall), millis, quotient, ratio, func(v float64) bool { return v <= 1.15 }},
	{"start of run, without and with", "≤ +10000 µs", startOfRun, micros, rise, difference, func(v float64) bool { return v <= 10e6 }},
	{"idle egress process, PSS", "≤ 8.0 MiB", idle, nil, rise, mebibytes, func(v float64) bool { return v <= 8<<20 }},
}

func quotient(beside, other float64) float64 { return other / beside }
func second(_, other float64) float64        { return other }
func rise(beside, other float64) float64     { return other - beside }

func perSecond(v float64) string  { return fmt.Sprintf("%.0f MB/s", v/1e6) }
func ratio(v float64) string      { return fmt.Sprintf("%.2f×", v) }
func micros(v float64) string     { return fmt.Sprintf("%.0f µs", v/1e3) }
func difference(v float64) string { return fmt.Sprintf("%+.0f µs", v/1e3) }
func millis(v float64) string     { return fmt.Sprintf("%.0f ms", v/1e6) }
func mebibytes(v float64) string  { return fmt.Sprintf("%.1f MiB", v/(1<<20)) }

func throughput(port string) func(b *bench) (sample, error) {
	return func(b *bench) (sample, error) {
		s, err := b.all(port, bigTransfer, 1)
		return sample{bigTransfer / s.beside * 1e9, bigTransfer / s.inside * 1e9, bigTransfer / s.relayed * 1e9}, err
	}
}

func connection(port string) func(b *bench) (sample, error) {
	return func(b *bench) (sample, error) { return b.all(port, 1, connections) }
}

func (b *bench) all(port string, size int64, times int) (s sample, err error) {
	if s.beside, err = b.beside.ask(serverName, port, size, times); err != nil {
		return s, err
	}
	if s.inside, err = b.inside.ask(serverName, port, size, times); err != nil {
		return s, err
	}
	s.relayed, err = b.beside.ask(relayAddr, port, size, times)
	return s, err
}

// rows are the rows to measure.
func (o Options) rows() []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !o.Run.MatchString(r.title) })
}

// processorTime measures what the processes between the two ends use for a connection: of a
// sandbox the egress process and the supervisor, and the empty relay. Other programs that run
// meanwhile disturb it little.
func processorTime(b *bench) (s sample, err error) {
	if _, err := b.all(plainPort, 1, 1); err != nil { // the sandbox may still start
		return s, err
	}
	if s.inside, err = b.used(name, func() error { _, err := b.inside.ask(serverName, plainPort, 1, manyConns); return err }); err != nil {
		return s, err
	}
	s.relayed, err = b.used("", func() error { _, err := b.beside.ask(relayAddr, plainPort, 1, manyConns); return err })
	return s, err
}

// used returns the nanoseconds of processor time that each connection takes in the processes of a
// sandbox's network, or in the empty relay if sandbox is empty.
func (b *bench) used(sandbox string, do func() error) (float64, error) {
	before, err := b.cpu(sandbox)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	time.Sleep(settle)
	after, err := b.cpu(sandbox)
	return float64(after-before) / manyConns, err
}

// settle is how long the last reports of connections take.
const settle = 200 * time.Millisecond

func (b *bench) cpu(sandbox string) (time.Duration, error) {
	procs, err := host.ReadProcesses()
	if err != nil {
		return 0, err
	}
	if sandbox == "" {
		return procs[b.relay.cmd.Process.Pid].CPU, nil
	}
	of := host.PIDs{}
	for pid := range b.egressOf(procs, sandbox) {
		of[pid], of[procs[pid].Parent] = true, true
	}
	if len(of) == 0 {
		return 0, fmt.Errorf("sandbox %s: no egress process found", sandbox)
	}
	return procs.CPU(of), nil
}

// egressOf finds the egress process of a sandbox.
func (b *bench) egressOf(procs host.Processes, sandbox string) host.PIDs {
	found := host.PIDs{}
	for pid, p := range procs {
		if is(pid, "__egress") && is(p.Parent, "__supervise") && is(p.Parent, filepath.Join(b.dir, "home")) && is(p.Parent, sandbox) {
			found[pid] = true
		}
	}
	return found
}

// Commands that install the packages of the registry. They check no certificate.
const (
	npmCI = `npm ci --silent --ignore-scripts --no-audit --no-fund --no-update-notifier --strict-ssl=false --cache /tmp/cache`

	pipInstall = `/usr/bin/python3 -m pip install -q --isolated --disable-pip-version-check --no-cache-dir --no-deps --no-compile ` +
		`--root-user-action=ignore --trusted-host ` + serverName + `:` + registryPort + ` --index-url ` + registryURL + `/simple -r requirements.txt --target /tmp/packages`
)

// install runs a command with the host's network, and with one of named hosts.
func install(command string) func(b *bench) (sample, error) {
	return func(b *bench) (s sample, err error) {
		args := []string{"--preset", "development", "--", "sh", "-c", command}
		if s.beside, err = b.timed(append([]string{"run", "--rm", "--net", "host"}, args...)...); err == nil {
			s.inside, err = b.timed(slices.Concat([]string{"run", "--rm"}, allow, args)...)
		}
		return s, err
	}
}

// timed returns the nanoseconds of a verb.
func (b *bench) timed(args ...string) (float64, error) {
	begin := time.Now()
	err := b.run(args...)
	return float64(time.Since(begin)), err
}

func startOfRun(b *bench) (s sample, err error) {
	if s.beside, err = b.timed("run", "--rm", "--", "true"); err == nil {
		s.inside, err = b.timed(slices.Concat([]string{"run", "--rm"}, allow, []string{"--", "true"})...)
	}
	return s, err
}

// idle measures the process of a sandbox that has just started.
func idle(b *bench) (s sample, err error) {
	const other = "idle"
	if err := b.run(append([]string{"run", "--detach", "--name", other}, allow...)...); err != nil {
		return s, err
	}
	defer func() {
		err = errors.Join(err, b.run("stop", other), b.run("rm", "--force", other))
	}()
	procs, err := host.ReadProcesses()
	if err != nil {
		return s, err
	}
	pss, err := b.egressOf(procs, other).PSS()
	return sample{inside: float64(pss)}, err
}

// is reports whether a process has that argument.
func is(pid int, arg string) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	return slices.Contains(strings.Split(string(text), "\x00"), arg)
}

// measure measures all rows in turn, so that a slow minute hits all of them.
func (b *bench) measure(w io.Writer) error {
	rows := b.rows()
	all := make([][]sample, len(rows))
	for i := range b.Rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", i+1, b.Rounds)
		for k, r := range rows {
			s, err := r.measure(b)
			if err != nil {
				return fmt.Errorf("%s: %w", r.title, err)
			}
			all[k] = append(all[k], s)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tbeside\tin a sandbox\tcompared\tan empty relay\tasked\tmet")
	for k, r := range rows {
		of := func(value func(s sample) float64) float64 {
			var values []float64
			for _, s := range all[k] {
				values = append(values, value(s))
			}
			return median(values)
		}
		sides, relayed, met := "\t", "", "NO"
		if r.format != nil {
			sides = r.format(of(func(s sample) float64 { return s.beside })) + "\t" + r.format(of(func(s sample) float64 { return s.inside }))
		}
		if all[k][0].relayed > 0 {
			relayed = r.show(of(func(s sample) float64 { return r.compare(s.beside, s.relayed) }))
		}
		compared := of(func(s sample) float64 { return r.compare(s.beside, s.inside) })
		switch {
		case r.met == nil:
			met = "-"
		case r.met(compared):
			met = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.title, sides, r.show(compared), relayed, r.asked, met)
	}
	fmt.Fprintf(t, "\nload average %.1f at the end\n", host.LoadAverage())
	return t.Flush()
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

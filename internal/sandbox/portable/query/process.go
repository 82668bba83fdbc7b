package query

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/landlock"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

// Verb is the first argument of the process, which selects Main.
const Verb = "__query"

// databaseFD is the descriptor of the database in the process.
const databaseFD = 3

// ready is what the process writes before it reads its job.
const ready = "."

// job is the input of the process.
type job struct {
	Statement []byte // need not be UTF-8
	Rows      int
}

// process is the process of a query.
type process struct {
	pid   int
	in    *os.File
	out   *os.File
	said  complaint     // complete when it has ended
	wait  chan struct{} // closed when nothing needs pid any more
	ended chan string   // has how it ended
}

// start starts the process of a query. It is killed when ctx ends, and when this process ends.
func start(ctx context.Context, db *os.File) (*process, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	defer theirOut.Close()
	p := &process{in: in, out: out, wait: make(chan struct{}), ended: make(chan string, 1)}
	cmd := exec.CommandContext(ctx, thisProgram, Verb)
	cmd.Args[0] = "agentfense"
	cmd.Env = []string{}
	if zone, is := os.LookupEnv("TZ"); is {
		cmd.Env = append(cmd.Env, "TZ="+zone)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, &p.said
	cmd.ExtraFiles = []*os.File{db}
	// A group of its own: a key of the terminal ends it by ctx.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	thread.Go(func() {
		err := restrict()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			<-p.wait
			_ = cmd.Wait() // the state says more
			p.ended <- cmd.ProcessState.String()
		}
	})
	if err := <-started; err != nil {
		p.close()
		return nil, errdefs.New(errdefs.Internal, "sql: start the process of the query: %w", err)
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (p *process) close() {
	p.in.Close()
	p.out.Close()
}

// begin limits the process and hands it the statement. Errors: errBroken.
func (p *process) begin(statement string, b Bounds) error {
	defer p.in.Close()
	err := p.limit(b)
	close(p.wait)
	if err == nil {
		err = json.NewEncoder(p.in).Encode(job{[]byte(statement), b.Rows})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// limit waits until the process is ready, and limits it: its memory; the time of the processor, for
// the case that this process is stopped; files, since a statement writes none; and dumps, which
// would have what the audit log has. The collector of Go takes time of a second processor.
func (p *process) limit(b Bounds) error {
	if _, err := io.ReadFull(p.out, make([]byte, len(ready))); err != nil {
		return err
	}
	data, err := dataBytes(p.pid)
	if err != nil {
		return err
	}
	seconds := uint64((b.Time + time.Second - 1) / time.Second)
	for _, l := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_DATA, data + uint64(b.MemoryBytes)},
		{unix.RLIMIT_CPU, 2*seconds + 2},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_CORE, 0},
	} {
		var now unix.Rlimit
		err := unix.Prlimit(p.pid, l.resource, nil, &now)
		if most := min(l.most, now.Max); err == nil {
			err = unix.Prlimit(p.pid, l.resource, &unix.Rlimit{Cur: most, Max: most}, nil)
		}
		if err != nil {
			return fmt.Errorf("prlimit %d: %w", l.resource, err)
		}
	}
	return nil
}

// dataBytes returns what RLIMIT_DATA counts of a process (proc_pid_statm(5)).
func dataBytes(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	const dataField = 5
	fields := strings.Fields(string(text))
	if len(fields) <= dataField {
		return 0, fmt.Errorf("/proc/%d/statm has %q", pid, text)
	}
	pages, err := strconv.ParseUint(fields[dataField], 10, 64)
	return pages * uint64(os.Getpagesize()), err
}

const thisProgram = "/proc/self/exe"

// readable are the files that the process may read: this program, the shared libraries of one that
// is built with cgo, and the time zones, for SQLite's modifier localtime.
var readable = []landlock.Place{
	{Path: thisProgram},
	{Path: "/lib"},
	{Path: "/lib64"},
	{Path: "/usr/lib"},
	{Path: "/usr/lib64"},
	{Path: "/etc/localtime"},
	{Path: "/usr/share/zoneinfo"},
}

// restrict takes from the calling thread, and from what it starts, all files but the readable ones,
// and what programs could gain by their mode.
func restrict() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if version := landlock.Version(); version != 0 {
		return landlock.Restrict(version, readable...)
	}
	return nil
}

// complaint is the beginning of what the process wrote to its standard error.
type complaint struct{ buf bytes.Buffer }

const complaintBytes = 4096

func (c *complaint) Write(b []byte) (int, error) {
	c.buf.Write(b[:min(len(b), complaintBytes-c.buf.Len())])
	return len(b), nil
}

func (c *complaint) line() string {
	line, _, _ := strings.Cut(c.buf.String(), "\n")
	return line
}

// noMemory reports whether the runtime of Go got no memory (malloc.go and mem_linux.go there).
func (c *complaint) noMemory() bool {
	text := c.buf.String()
	return strings.Contains(text, "out of memory") || strings.Contains(text, "cannot allocate memory")
}

// Package isolate says what it takes to start a sandbox's processes apart from
// the host; packages below it do so with one runtime each (bwrap, docker), and
// isolatetest holds what any of them must keep.
//
// A started sandbox is one process, its PID 1, with a socket to the supervisor
// as descriptor 3 and no other way out. What runs in it later is asked for over
// that socket (package guest): there is no command, environment or working
// directory here.
package isolate

import (
	"cmp"
	"context"
	"io"
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Workspace shows the view inside, wherever else that is.
const Workspace = "/workspace"

// Spec describes a sandbox. Paths "inside" are absolute and clean.
type Spec struct {
	// ID names the sandbox, so that what a killed start has left can be found, and
	// for a runtime that keeps names of its own. It may be empty for bwrap. Dir is
	// a directory on the host that is the sandbox's alone, for such a runtime to
	// keep in what it shows inside. Image is the system inside. Both are
	// docker's: bwrap shows the host's system and refuses an Image.
	ID    string
	Dir   string
	Image string

	// View is where the view of the source is mounted, on the host's side.
	View string
	// Workspace is the path inside at which the view appears.
	Workspace string
	// Conceal lists host directories whose contents must not show through any
	// other mount: the source, the state directory. Where a read-only system
	// directory holds one, an empty directory covers it.
	Conceal []string
	// Mounts are further host paths to show, read-only.
	Mounts []Mount

	// Hostname is the sandbox's host name; empty means "sandbox".
	Hostname string
	// Net says what of the network is there.
	Net Net

	// UID and GID are the ids inside (docker: the same as on the host), User their name (empty:
	// "user"), Home the home directory inside, made empty (empty: "/home/" + User).
	UID, GID int
	User     string
	Home     string
	// HomeDir is a directory on the host that is shown, writable, as the home
	// directory, in place of an empty one. It belongs to HostUID, and no other mount
	// may lie in Home: what a command leaves there could be a link. For docker it is a
	// mount of its own.
	HomeDir string
	// Etc are further files of /etc inside, by name.
	Etc map[string][]byte
	// HostUID and HostGID are the ids on the host that everything inside runs
	// with. They are required of root, who drops to them (with no groups)
	// before any namespace is made. Other users stay what they are and leave
	// them zero or negative.
	HostUID, HostGID int

	// Init is the static binary that becomes PID 1 (empty: our own), InitArgs
	// its arguments and InitEnv its environment, which commands do not get.
	Init     string
	InitArgs []string
	InitEnv  []string // KEY=VALUE
	// InitEnvOf, if set, is asked for one variable more once the process that makes
	// the namespaces is there. Its error ends the start. Docker does not ask.
	InitEnvOf func(pid int) (string, error)
	// Guest becomes descriptor 3 of PID 1. Start takes it over and closes it,
	// whatever it returns.
	Guest *os.File
	// DevPTS is the root of a devpts instance that becomes /dev/pts inside;
	// empty gives the sandbox one of its own.
	DevPTS string

	// Cgroup, if set, is called with the process that makes the namespaces,
	// before it does, to put it into a control group. PID 1 is born in that
	// group, which is the root of the sandbox's cgroup namespace. Its error
	// ends the start. A runtime that makes control groups itself (docker) is
	// given Limits instead; each refuses the other's.
	Cgroup func(pid int) error
	Limits ProcessLimits
	// Stderr receives what the runtime and PID 1 complain about, at most
	// 64 kB of it. It may be nil.
	Stderr io.Writer
}

// SetDefaults gives empty fields the values that Spec names. Errors: Internal.
func (s *Spec) SetDefaults() error {
	s.Hostname = cmp.Or(s.Hostname, "sandbox")
	s.User = cmp.Or(s.User, "user")
	s.Home = cmp.Or(s.Home, "/home/"+s.User)
	if s.Init != "" {
		return nil
	}
	own, err := os.Executable()
	if err != nil {
		return errdefs.New(errdefs.Internal, "find our own binary: %w", err)
	}
	s.Init = own
	return nil
}

// ProcessLimits bound what a sandbox uses; zero is no limit.
type ProcessLimits struct {
	MemoryBytes int64 // swap included
	CPUs        float64
	CPUShares   int64 // weight against others, 2 to 262144
	PIDs        int64
}

// Mount shows a host file or directory inside, read-only.
type Mount struct {
	Source string // host path
	Target string // path inside; empty means the same as Source
}

// Net says which network a sandbox sees.
type Net uint8

// The networks.
const (
	NetNone   Net = iota // a loopback interface of its own, nothing else
	NetHost              // the host's, with its resolver's configuration
	NetBridge            // docker's bridge, to where the host routes it; bwrap refuses it
)

// Isolator starts sandboxes.
type Isolator interface {
	// Start starts PID 1 of a sandbox and returns when it is about to run;
	// that it does run shows on the guest socket. ctx bounds Start alone.
	//
	// Errors: Invalid (the spec), Precondition, Unsupported (this host cannot,
	// and what to do about it), Deadline, Canceled.
	Start(ctx context.Context, spec Spec) (Process, error)
}

// Process is a sandbox that was started. It ends when PID 1 does, when it is
// killed, or when our process does (bwrap: the thread that started it); all its
// processes end with it.
type Process interface {
	// PID is the pid of PID 1 in our pid namespace.
	PID() int
	// Done is closed when every process of the sandbox is gone.
	Done() <-chan struct{}
	// Wait waits for Done. Its error says how PID 1 ended if it was neither
	// killed by Kill nor returned 0, with the last complaint of the runtime.
	Wait() error
	// Kill ends all processes of the sandbox at once. It is not an error if
	// they have ended.
	Kill() error
}

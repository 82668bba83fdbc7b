// Package isolate defines how to start a sandbox's processes isolated from the host.
// Packages below it implement this with one runtime each (bwrap, docker), and isolatetest
// tests what every runtime must provide.
//
// A started sandbox is one process, its PID 1, with a socket to the supervisor as
// descriptor 3 and no other connection out. Package guest starts commands over that socket,
// so this package has no command, environment or working directory.
package isolate

import (
	"cmp"
	"context"
	"io"
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Workspace is a path inside that always shows the view.
const Workspace = "/workspace"

// Spec describes a sandbox. Paths inside are absolute and clean.
type Spec struct {
	// ID is the sandbox's id, by which the leftovers of a killed start are found. It may be
	// empty for bwrap. Dir is the sandbox's private directory on the host, and Image the
	// image of the system inside. Only docker uses these two; bwrap shows the host's system
	// and refuses an Image.
	ID    string
	Dir   string
	Image string

	// View is the host path of the views' mount. ViewName is the name in it of the view at
	// Workspace; empty if View itself is that.
	View     string
	ViewName string
	// Workspace is the path inside at which the view appears.
	Workspace string
	// Conceal lists host directories that no other mount may show: the source, the state
	// directory. If a read-only system directory contains one, an empty directory covers
	// it.
	Conceal []string
	// Mounts are additional host paths to show, read-only, and other views.
	Mounts []Mount

	// Hostname is the sandbox's host name; empty means "sandbox".
	Hostname string
	// Net is the network of the sandbox. For NetNamed, bwrap joins the network namespace
	// NetNS, which the caller keeps. Docker makes one and calls MakeNet with it before PID 1
	// gets anything; its error ends the start. Each refuses the field of the other.
	Net     Net
	NetNS   *os.File
	MakeNet func(namespace *os.File) error

	// UID and GID are the ids inside (docker: the same as on the host), User their name
	// (default: "user"), and Home the home directory inside, which starts empty (default:
	// "/home/" + User).
	UID, GID int
	User     string
	Home     string
	// HomeDir is a directory on the host that is mounted, writable, as the home directory,
	// instead of an empty one. HostUID owns it. No other mount may be in Home, because a
	// command may leave symbolic links there. For docker it must be a mount point.
	HomeDir string
	// Notes is a directory on the host that is mounted, read-only, at NotesDir; empty for none. It
	// has an empty file for each of AuthorityStubs, with an Authority, and of DockerStubs, on which
	// other files are mounted. It is a mount point, so that no mount table inside shows its host
	// path.
	Notes string
	// Temporary are directories on the host that are mounted, writable, instead of the empty ones
	// at /tmp, /var/tmp and Home, by these paths. HostUID owns them. Each is a mount point, and no
	// other mount may be in one, because a command may leave symbolic links there. Only bwrap knows
	// them.
	Temporary map[string]string
	// Shim takes bubblewrap's place inside; nil for none.
	Shim *Shim
	// Within is the ID of the sandbox that this one is inside of, so that its leftovers are found
	// with that one's. Covered are what it hides besides what the views and mounts lack. Only
	// bwrap knows these two.
	Within  string
	Covered []Covering
	// Etc are additional files of /etc inside, by name.
	Etc map[string][]byte
	// Authority, if set, is the certificate of an authority that programs inside are to trust,
	// in PEM: it is in AuthorityFile, in BundleFile, and in the system's own file of
	// certificates inside.
	Authority []byte
	// HostUID and HostGID are the host ids of all processes inside. Root must set them; it
	// drops to them (without groups) before it makes a namespace. Other users keep their
	// ids and leave them zero or negative.
	HostUID, HostGID int

	// Init is the static binary of PID 1 (default: this program), InitArgs its arguments
	// and InitEnv its environment, which commands do not inherit.
	Init     string
	InitArgs []string
	InitEnv  []string // KEY=VALUE
	// InitEnvOf, if set, returns another variable for InitEnv. It is called with the pid of
	// the process that makes the namespaces. Its error ends the start. Docker does not call
	// it.
	InitEnvOf func(pid int) (string, error)
	// Guest becomes descriptor 3 of PID 1. Start always closes it.
	Guest *os.File
	// DevPTS is the root of a devpts instance that becomes /dev/pts inside; empty gives the
	// sandbox a new one.
	DevPTS string

	// Cgroup, if set, is called with the pid of the process that will make the namespaces,
	// to move it into a control group. PID 1 starts in that group, which is the root of the
	// sandbox's cgroup namespace. Its error ends the start. A runtime that makes control
	// groups itself (docker) uses Limits instead. Each refuses the field of the other.
	Cgroup func(pid int) error
	Limits ProcessLimits
	// Stderr receives the standard error of the runtime and PID 1, at most 64 kB. It may be
	// nil.
	Stderr io.Writer
}

// SetDefaults sets empty fields to the defaults that Spec names. Errors: Internal.
func (s *Spec) SetDefaults() error {
	s.Hostname = cmp.Or(s.Hostname, "sandbox")
	s.User = cmp.Or(s.User, "user")
	s.Home = cmp.Or(s.Home, "/home/"+s.User)
	if s.Init != "" {
		return nil
	}
	own, err := os.Executable()
	if err != nil {
		return errdefs.New(errdefs.Internal, "find the agentfense binary: %w", err)
	}
	s.Init = own
	return nil
}

// ProcessLimits are the resource limits of a sandbox. Zero means no limit.
type ProcessLimits struct {
	MemoryBytes int64 // swap included
	CPUs        float64
	CPUShares   int64 // weight against others, 2 to 262144
	PIDs        int64
}

// Mount shows a host file or directory inside, read-only, or a view.
type Mount struct {
	Source string // host path
	Target string // path inside; empty means the same as Source
	View   string // name of the view to show instead of a Source, see Spec.View
}

// Net is the network of a sandbox.
type Net uint8

// The networks.
const (
	NetNone   Net = iota // a private loopback interface only
	NetHost              // the host's, with its resolver's configuration
	NetBridge            // docker's bridge, as the host routes it; bwrap refuses it
	NetNamed             // a namespace that reaches named hosts only
)

// Isolator starts sandboxes.
type Isolator interface {
	// Start starts PID 1 of a sandbox and returns shortly before it runs; PID 1 reports on
	// the guest socket that it runs. ctx limits only Start.
	//
	// Errors: Invalid (the spec), Precondition, Unsupported (with the cause and the fix),
	// Deadline, Canceled.
	Start(ctx context.Context, spec Spec) (Process, error)
}

// Process is a started sandbox. It ends when PID 1 ends, when it is killed, or when our
// process ends (bwrap: the thread that started it). All its processes end with it.
type Process interface {
	// PID returns the pid of PID 1 in our pid namespace.
	PID() int
	// Done is closed when every process of the sandbox has ended.
	Done() <-chan struct{}
	// Wait waits for Done. If PID 1 neither was killed by Kill nor returned 0, the error
	// says how it ended, with the last message of the runtime.
	Wait() error
	// Kill kills all processes of the sandbox. It succeeds if they have ended.
	Kill() error
}

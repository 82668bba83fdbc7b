package supervise

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/cgroup"
	"github.com/agentfense/agentfense/internal/confine/egress"
	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/confine/isolate/bwrap"
	"github.com/agentfense/agentfense/internal/confine/isolate/docker"
	"github.com/agentfense/agentfense/internal/confine/landlock"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/contributor"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/gitview"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// gcPercent trades processor time for memory: a supervisor's heap is small
// and there is one for each sandbox.
const gcPercent = 50

// startGC holds until the trimmer looks for the first time: what a start leaves
// behind is then collected at once, and never for a sandbox that ends before.
const startGC = 200

// open reads the record and takes the sandbox's lock. Errors: Unavailable
// while another process has it.
func (s *supervisor) open(home, name string) error {
	var err error
	if s.home, err = record.OpenHomeAt(home); err != nil {
		return err
	}
	if s.box, err = s.home.Open(name); err != nil {
		return err
	}
	s.lock, err = s.box.TryLock(record.PurposeSupervise)
	if held := (*record.HeldError)(nil); errors.As(err, &held) {
		return errdefs.New(errdefs.Unavailable, "%w", err)
	}
	if err != nil {
		return err
	}
	s.record = s.box.Record()
	if err := s.box.CheckNetwork(); err != nil {
		return err
	}
	return s.lock.SetSupervised(true)
}

// startPatience bounds the start of the process tree: a PID 1 that somebody has
// stopped would never be ready.
const startPatience = time.Minute

// setUp builds everything from the bottom up. What it built before an error
// tearDown takes down.
func (s *supervisor) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	debug.SetGCPercent(startGC)
	s.startedAt = time.Now()
	for _, step := range []func(context.Context) error{
		s.prepareProcess, s.openState, s.openLayers, s.openMounts, s.beginAsking, s.mountView, s.mountNotes, s.mountScratch, s.mountGit, s.mountHome, s.makeGroup, s.prepareInner, s.startInside, s.beginGrants, s.startServing, s.joinBoard,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepareProcess sets what holds for this process as a whole. Mounts of the
// host still arrive in our namespace, none of ours leaves it; docker's are made
// in the host's, so what a killed supervisor has left there goes first.
func (s *supervisor) prepareProcess(context.Context) error {
	unix.Umask(0)
	// With a limit of 1 the kernel pipes no dump either (fs/coredump.c). One of 0 stays.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
	unix.CloseOnExec(launch.ReadyFD)
	unix.CloseOnExec(launch.LeaseFD)
	_ = unix.Close(launch.TableFD) // a server's has none
	if s.asksScope {
		unix.CloseOnExec(launch.ScopeFD)
	}
	if s.docker() {
		return launch.ClearMounts(s.box.Dir())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return errdefs.New(errdefs.Unsupported, "mount namespace: %w", err)
	}
	return nil
}

func (s *supervisor) openState(context.Context) error {
	logFile, err := launch.OpenLogFile(s.box.LogPath())
	if err != nil {
		return errdefs.New(errdefs.Internal, "supervisor log: %w", err)
	}
	// A crash of the runtime is written to stderr.
	if err := unix.Dup3(int(logFile.Fd()), 2, 0); err != nil {
		return errdefs.New(errdefs.Internal, "supervisor log: %w", err)
	}
	s.log = slog.New(slog.NewJSONHandler(&launch.BoundedLog{To: logFile, Left: launch.MaxLogBytes}, nil)).With("sandbox", s.record.Name)
	if s.dir, err = os.Open(s.box.Dir()); err != nil {
		return errdefs.New(errdefs.Internal, "sandbox directory: %w", err)
	}
	s.output = outlog.Open(s.dir)
	if s.source, err = s.record.Source.Open(); err != nil {
		return err
	}
	if s.auditLog, err = s.box.OpenLog(); err != nil {
		return err
	}
	s.audit = audit.NewWriter(s.auditLog, audit.WriterOptions{
		OnFailure:  func(err error) { s.log.Error("audit: not written, events wait", "err", err) },
		OnRecovery: func() { s.log.Info("audit: written again") },
	})
	return nil
}

func (s *supervisor) openLayers(context.Context) error {
	options := layer.Options{
		Source:      s.source,
		Dir:         s.box.LayersDir(),
		Store:       s.home.LayerStore(),
		MountPoints: s.mountPoints(),
		Quota:       changes.QuotaOf(&s.record),
		Kept:        func() ([]string, error) { return snapshot.KeptLayers(s.box, "") },
		User:        layerUser(),
	}
	var err error
	if s.absent, err = changes.Absent(&s.record); err != nil {
		return err
	}
	options.Absent = s.absent
	if s.reserved, err = s.home.Reserved(s.record.Source); err != nil {
		return err
	}
	p, err := s.compile(s.record.Rules)
	if err != nil {
		return err
	}
	s.policy.Store(p)
	options.Substitutes = gitview.IndexSubstitutes(s.hides)
	if s.stack, err = layer.Open(options); err != nil {
		return err
	}
	return s.renewIndex()
}

// mountView shows the layers under the policy. It comes before the first
// process is started: Go's fork can hang on a mount served by its own parent.
func (s *supervisor) mountView(context.Context) error {
	if err := CheckFUSE(); err != nil {
		return err
	}
	mountpoint := filepath.Join(s.box.Dir(), launch.ViewDir)
	if err := os.Mkdir(mountpoint, 0o700); err != nil && !os.IsExist(err) {
		return errdefs.New(errdefs.Internal, "view: %w", err)
	}
	uid, gid := s.hostIDs()
	err := s.mountAll(mountpoint, fusefs.Options{
		Layer: s.stack, Policy: s.policy.Load(), PolicyChanged: len(s.record.EarlierRules) > 0,
		UID: uint32(uid), GID: uint32(gid),
		OnDenial: s.onDenial, OnChange: s.onChange, OnSource: s.onSource, Owner: s.ownerOf, Logger: s.log,
		Ask: s.asker(),
	})
	if err != nil {
		return err
	}
	s.watches.toggle = s.watchSource
	s.terminals, err = mountTerminals(filepath.Join(s.box.Dir(), launch.TerminalsDir), s.terminalIDs())
	return err
}

// docker reports whether the sandbox is a container.
func (s *supervisor) docker() bool { return s.record.Runtime == record.RuntimeDocker }

// hostIDs are the ids of the sandbox's processes as this process counts them.
func (s *supervisor) hostIDs() (uid, gid int) {
	if s.record.HostUID != 0 {
		return int(s.record.HostUID), int(s.record.HostUID)
	}
	return os.Geteuid(), os.Getegid()
}

// terminalIDs are the owner that terminals must be given, if it is another
// than the one who opens them.
func (s *supervisor) terminalIDs() *ids {
	if s.record.HostUID == 0 {
		return nil
	}
	return &ids{uid: int(s.record.HostUID), gid: int(s.record.HostUID)}
}

// LimitsProcesses reports whether a sandbox of this user can have a limit of
// processes without a cgroup. The kernel never applies that one to root.
func LimitsProcesses() bool { return os.Geteuid() != 0 && guest.CanLimitProcesses() }

// processesOutside is how many processes of a sandbox the limit of its user
// namespace does not count and a cgroup does: bubblewrap, which waits.
const processesOutside = 1

// makeGroup makes the sandbox's cgroup if a limit asks for one. An ordinary user's
// limit of processes holds without. A limit that cannot be enforced is an error. Without limits
// there is none: moving the first process into a group waits for a grace period of the kernel, 10
// ms and more, and an exec's descendants are found through its subreaper anyway. Docker makes a
// group itself.
func (s *supervisor) makeGroup(context.Context) error {
	limits := launch.GroupLimits(s.record)
	if limits.IsZero() || s.docker() {
		return nil
	}
	tried := s.awaitScope()
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	if limits.PIDs > 0 && host.Check(cgroup.GroupLimits{PIDs: limits.PIDs}) != nil && LimitsProcesses() {
		s.processLimit, limits.PIDs = limits.PIDs, 0
		s.log.Info("the limit of processes is RLIMIT_NPROC", "scope", tried)
	}
	if limits.IsZero() {
		return nil
	}
	s.group, err = host.Create(string(s.record.ID), limits)
	if err == nil {
		s.usage = s.group
	}
	return launch.WithoutScope(err, tried)
}

// watchGroup finds the group that docker has made if a limit asks for one.
func (s *supervisor) watchGroup() error {
	if !s.docker() || launch.GroupLimits(s.record).IsZero() {
		return nil
	}
	group, err := cgroup.Of(s.process.PID())
	if err == nil {
		s.usage = group
	}
	return err
}

// BwrapVariable names the bubblewrap to use; empty is the one on the PATH. It is
// the server's configuration key runtime.bwrap_path.
const BwrapVariable = "AGENTFENSE_RUNTIME_BWRAP_PATH"

// DockerHostVariable names the docker daemon to use. It is the server's
// configuration key runtime.docker.host.
const DockerHostVariable = docker.HostVariable

// startInside starts the isolated process tree, whose PID 1 is our guest.
func (s *supervisor) startInside(ctx context.Context) error {
	program, err := s.programInside()
	if err != nil {
		return err
	}
	if s.hasNamedNet() {
		if err := s.prepareNetwork(); err != nil {
			return err
		}
	}
	if s.hasNamedNet() && !s.docker() {
		if err := s.startNetwork(program, nil); err != nil {
			return err
		}
	}
	ours, theirs, err := guest.Pair()
	if err != nil {
		return err
	}
	if s.process, err = s.isolator().Start(ctx, s.spec(program, theirs)); err != nil {
		ours.Close()
		return err
	}
	s.guest = guest.NewConn(ours, s.onSocket)
	if s.group != nil {
		if err := s.group.Settle(); err != nil {
			return err
		}
	}
	if err := s.guest.Ready(ctx); err != nil {
		return s.neverReady(err)
	}
	s.warn("refused sockets are not recorded", s.guest.Quiet())
	if err := s.watchGroup(); err != nil {
		return err
	}
	if err := s.networkReady(ctx); err != nil {
		return err
	}
	return s.audit.Enqueue(audit.SandboxStarted{
		PID: os.Getpid(), Enforced: s.enforced(), AllowNet: audit.Texts(s.record.AllowNet), Mounts: contributor.AuditMounts(s.record.Mounts),
		Scratch: audit.Texts(scratch.At(s.record.Scratch)), Git: string(s.record.Git), Published: s.publishedPorts(),
	})
}

// isolator makes the isolator of the sandbox's runtime.
func (s *supervisor) isolator() isolate.Isolator {
	if s.docker() {
		return docker.New(docker.Options{})
	}
	return bwrap.New(bwrap.Options{Path: os.Getenv(BwrapVariable)})
}

// netOf reads a record's network; none is what is not here.
var netOf = map[string]isolate.Net{
	record.NetNone: isolate.NetNone, record.NetHost: isolate.NetHost, record.NetBridge: isolate.NetBridge,
	record.NetNamed: isolate.NetNamed,
}

// isolatorPatience is how long an isolator without a PID 1 may take to say why.
const isolatorPatience = 2 * time.Second

// neverReady explains why PID 1 never ran by how the isolator ended. Trying
// again would not help.
func (s *supervisor) neverReady(err error) error {
	select {
	case <-s.process.Done():
		err = cmp.Or(s.process.Wait(), err)
	case <-time.After(isolatorPatience):
	}
	if n := s.record.Limits.PIDs; n > 0 && n < leastPIDs {
		return errdefs.New(errdefs.Unsupported, "start inside: a limit of %d processes and threads (--pids) is too small: the sandbox needs about ten by itself; give %d or more", n, leastPIDs)
	}
	return errdefs.New(errdefs.Unsupported, "start inside: %w", err)
}

// leastPIDs is a limit of processes with which PID 1, a leader and a small command run: they have
// about four threads each.
const leastPIDs = 16

func (s *supervisor) spec(program string, theirs *os.File) isolate.Spec {
	user := UserOf(&s.record)
	spec := isolate.Spec{
		ID:        string(s.record.ID),
		View:      filepath.Join(s.box.Dir(), launch.ViewDir),
		Workspace: s.record.Workspace,
		Conceal:   []string{string(s.record.Source.Path), s.home.Dir()},
		Init:      program,
		InitArgs:  []string{guest.InitVerb},
		InitEnv:   guest.InitEnv,
		InitEnvOf: guest.FilesEnv,
		Stderr:    &s.complaints,
		UID:       user.UID, GID: user.GID,
		HostUID: -1, HostGID: -1,
		User: user.Name, Home: user.Home,
		Etc:    map[string][]byte{"gitconfig": s.gitConfig()},
		Guest:  theirs,
		DevPTS: s.terminals.dir,
		Notes:  s.notes.At(),
	}
	if t := &s.narrower; t.dir != "" {
		spec.Shim = &isolate.Shim{Program: t.shim, Socket: filepath.Join(t.dir, innerSocket)}
		spec.Temporary = t.temporary
	}
	if s.keptHome.view != nil {
		spec.HomeDir = filepath.Join(s.box.Dir(), launch.HomeViewDir)
	}
	if s.record.HostUID != 0 {
		spec.HostUID, spec.HostGID = int(s.record.HostUID), int(s.record.HostUID)
	}
	if s.docker() {
		l := s.record.Limits
		spec.Dir, spec.Image = s.box.Dir(), s.record.Image
		spec.Limits = isolate.ProcessLimits{MemoryBytes: l.MemoryBytes, CPUs: l.CPUs, CPUShares: l.CPUShares, PIDs: l.PIDs}
	}
	if s.group != nil {
		spec.Cgroup = s.group.Enter
	}
	if s.processLimit > 0 {
		spec.InitEnv = append(slices.Clone(spec.InitEnv), guest.LimitEnv(s.processLimit-processesOutside))
	}
	spec.Net = netOf[s.record.Net]
	if s.hasNamedNet() {
		if s.docker() {
			spec.MakeNet = func(namespace *os.File) error { return s.startNetwork(program, namespace) }
		} else {
			spec.NetNS = s.egress.Namespace()
		}
		spec.Etc["resolv.conf"] = []byte("nameserver " + egress.Resolver.String() + "\n")
		if s.asks != nil { // a resolver waits longer for a person than for a server
			spec.Etc["resolv.conf"] = append(spec.Etc["resolv.conf"], "options timeout:30 attempts:5\n"...)
		}
		if s.authority != nil {
			spec.Authority = s.authority.PEM()
		}
	}
	spec.ViewName, spec.Mounts = s.shown()
	return spec
}

// gitConfig is what a git inside is told. Whose a server's sandbox is to git its client
// has said, or nobody.
// What a mount shows has an owner that is nobody inside, for which git refuses a
// repository: so the owner does not matter where there are mounts.
func (s *supervisor) gitConfig() []byte {
	c := gitconfig.Inside{Safe: []string{s.record.Workspace}}
	if served := s.record.Served; served != nil {
		c.User = served.Git
	} else {
		c.User = gitconfig.Of(os.Getenv, string(s.record.Source.Path))
	}
	if len(s.record.Mounts) > 0 {
		c.Safe = append(c.Safe, "*")
	}
	return c.Encode()
}

// enforced lists what really holds, in the words of the mechanisms.
func (s *supervisor) enforced() []string {
	list := []string{"fuse", s.record.Runtime, "seccomp", audit.EnforcedNet + s.record.Net}
	if s.group != nil || s.docker() && !launch.GroupLimits(s.record).IsZero() {
		list = append(list, "cgroup")
	}
	if s.processLimit > 0 {
		list = append(list, "rlimit")
	}
	if s.guest.Quiet() == nil {
		list = append(list, "seccomp notify")
	}
	if landlock.Version() > 0 {
		list = append(list, "landlock")
	}
	return list
}

func (s *supervisor) startServing(context.Context) error {
	var err error
	s.listener, err = listen(s.dir)
	return err
}

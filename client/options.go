package client

import (
	"io"
	"strconv"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
)

// Options are values of the interfaces below, one for each family of calls. An option works with
// the calls of its interfaces.

// Option configures the connection: New, Connect, FromCodebase, FromLocal.
type Option interface {
	FromOption
	connects()
}

// FromOption is an option of FromCodebase and FromLocal.
type FromOption interface {
	LocalOption
	takesCodebase()
}

// LocalOption is an option of FromLocal.
type LocalOption interface {
	set(*settings)
	takesDirectory()
}

// SandboxOption configures a sandbox: CreateSandbox, FromCodebase, FromLocal.
type SandboxOption interface {
	FromOption
	makesSandbox()
}

// LinkOption is an option of LinkCodebase.
type LinkOption interface {
	set(*settings)
	links()
}

// ListOption selects sandboxes: Sandboxes.
type ListOption interface {
	set(*settings)
	lists()
}

// RunOption configures a command: Sandbox.Run, Sandbox.ExecStream, Sandbox.ExecDetached.
type RunOption interface {
	set(*settings)
	runs()
}

// AttachOption configures a program: Attach.
type AttachOption interface {
	set(*settings)
	attaches()
}

// ResumeOption is an option of Resume.
type ResumeOption interface {
	set(*settings)
	resumes()
}

// AuditOption selects records: Audit.
type AuditOption interface {
	set(*settings)
	tells()
}

// SessionOption configures a session: Sandbox.Session.
type SessionOption interface {
	set(*settings)
	opensSession()
}

// SessionRunOption configures a command of a session: Session.Exec, Session.ExecStream,
// Session.ExecDetached.
type SessionRunOption interface {
	set(*settings)
	runsInSession()
}

// settings are the values of options. A call reads those that its options can set.
type settings struct {
	endpoint, token, program string
	ca, cert, key            string

	codebaseName, ownerID string
	ignoreFiles           bool
	atHostPath            bool
	ignore                []string
	link                  *bool // nil: FromLocal decides

	codebaseID, name string
	usage            bool
	sync             SyncMode
	preset           string
	rules            []PermissionRule
	policy           *Policy // instead of preset and rules
	labels           map[string]string
	runtime          RuntimeType
	image            string
	user             string
	home             Home
	allowNet         []string
	netLimits        []string
	ask              time.Duration
	board            bool
	repository       string
	publish          []string
	mounts           []Mount
	scratch, secrets []string
	git              *gitconfig.User // nil: this user's configuration in the directory dir
	dir              string          // of FromLocal; else ""
	limits           ResourceLimits
	expiresIn        time.Duration
	leaveStopped     bool

	stdin   io.Reader
	env     map[string]string
	workdir string
	timeout time.Duration
	detach  bool
	shell   string

	checkpoint bool

	stdout, stderr         io.Writer
	terminal               bool
	rows, columns          uint16
	stdoutFrom, stderrFrom int64

	follow bool
	events []string
	after  uint64
	since  time.Time
}

// collect returns the settings of a call's options.
func collect[O interface{ set(*settings) }](options []O) *settings {
	s := &settings{}
	for _, o := range options {
		o.set(s)
	}
	return s
}

// option implements every option interface. The result type of a With… function determines the
// calls for which it works.
type option func(*settings)

func (o option) set(s *settings) { o(s) }

func (option) connects()       {}
func (option) takesCodebase()  {}
func (option) takesDirectory() {}
func (option) makesSandbox()   {}
func (option) links()          {}
func (option) lists()          {}
func (option) runs()           {}
func (option) attaches()       {}
func (option) resumes()        {}
func (option) tells()          {}
func (option) opensSession()   {}
func (option) runsInSession()  {}

// WithEndpoint sets the server's endpoint: HOST:PORT, http://, https:// or unix:///PATH. Default:
// $AGENTFENSE_ENDPOINT, else this user's server. Connections to another host need TLS.
func WithEndpoint(endpoint string) Option {
	return option(func(s *settings) { s.endpoint = endpoint })
}

// WithToken sets the token of each call. Default: $AGENTFENSE_TOKEN, else the content of the file
// $AGENTFENSE_TOKEN_FILE, else, only for this user's own server, that server's token.
func WithToken(token string) Option {
	return option(func(s *settings) { s.token = token })
}

// WithTLS sets PEM files: the authority that signed the server's certificate, the client's
// certificate and its key. Default, also for "": $AGENTFENSE_TLS_CA, $AGENTFENSE_TLS_CERT,
// $AGENTFENSE_TLS_KEY.
func WithTLS(ca, cert, key string) Option {
	return option(func(s *settings) { s.ca, s.cert, s.key = ca, cert, key })
}

// WithProgram sets the agentfense program that the client starts if no server runs. Default:
// $AGENTFENSE_BINARY, else the one in PATH.
func WithProgram(path string) Option {
	return option(func(s *settings) { s.program = path })
}

// WithCodebaseName sets the name of the new codebase. Default: the name of the directory.
func WithCodebaseName(name string) interface {
	LinkOption
	LocalOption
} {
	return option(func(s *settings) { s.codebaseName = name })
}

// WithOwnerID sets the owner of the new codebase. Default: the token's owner, or this user if the
// token has none. A listing lists only the sandboxes of this owner.
func WithOwnerID(ownerID string) interface {
	LinkOption
	LocalOption
	ListOption
} {
	return option(func(s *settings) { s.ownerID = ownerID })
}

// WithIgnoreFiles hides from the view of a linked directory what an upload would leave out: files
// that match the default patterns, .gitignore and .sandboxignore. It has no effect if FromLocal
// uploads.
func WithIgnoreFiles() interface {
	LinkOption
	LocalOption
} {
	return option(func(s *settings) { s.ignoreFiles = true })
}

// WithIgnorePatterns also leaves out of an upload the files that match these patterns, in the form
// of a .gitignore. FromLocal then uploads the directory, also to this user's own server.
func WithIgnorePatterns(patterns ...string) LocalOption {
	return option(func(s *settings) { s.ignore = append(s.ignore, patterns...) })
}

// WithLink links the directory. The server must see it at the same path.
func WithLink() LocalOption {
	return option(func(s *settings) { s.link = new(true) })
}

// WithUpload uploads the directory, also to this user's own server.
func WithUpload() LocalOption {
	return option(func(s *settings) { s.link = new(false) })
}

// WithName sets a sandbox's name on the command line. A listing lists only the sandbox with this
// name.
func WithName(name string) interface {
	SandboxOption
	ListOption
} {
	return option(func(s *settings) { s.name = name })
}

// WithSync sets when a sandbox's changes reach an uploaded codebase. Default: as the server is
// configured; for FromLocal only by Apply.
func WithSync(mode SyncMode) SandboxOption {
	return option(func(s *settings) { s.sync = mode })
}

// WithLabels sets a sandbox's labels. A listing lists only sandboxes with all these labels. A
// second WithLabels replaces the first.
func WithLabels(labels map[string]string) interface {
	SandboxOption
	ListOption
} {
	return option(func(s *settings) { s.labels = labels })
}

// WithUsage adds SandboxInfo.Usage to each listed sandbox. The server counts up to 2000 entries of
// each.
func WithUsage() ListOption {
	return option(func(s *settings) { s.usage = true })
}

// WithCodebaseID lists the sandboxes of one codebase.
func WithCodebaseID(id string) ListOption {
	return option(func(s *settings) { s.codebaseID = id })
}

// WithPreset sets the preset whose rules come first. Default, without WithPolicy: DefaultPreset.
func WithPreset(name string) SandboxOption {
	return option(func(s *settings) { s.preset = name })
}

// WithPermissions adds rules to those of the preset. For rules without a preset use WithPolicy.
func WithPermissions(rules ...PermissionRule) SandboxOption {
	return option(func(s *settings) { s.rules = append(s.rules, rules...) })
}

// WithRuntime sets what confines the sandbox. Default: as the server is configured.
func WithRuntime(r RuntimeType) SandboxOption {
	return option(func(s *settings) { s.runtime = r })
}

// WithImage sets the image of the docker runtime. Default: as the server is configured.
func WithImage(image string) SandboxOption {
	return option(func(s *settings) { s.image = image })
}

// WithHome sets the home directory of the sandbox's commands. Default: HomePrivate. HomeKeep counts
// towards the disk limits and is never applied.
func WithHome(home Home) SandboxOption {
	return option(func(s *settings) { s.home = home })
}

// WithAllowNet lets the sandbox's commands reach hosts: HOST[:PORT][,raw], *.DOMAIN, an IP address,
// or a preset such as "@pypi". HOST,intercept opens TLS, and may name requests (docs/network.md).
// The server's configuration must include the hosts (network.allow).
// Default: no network. It can be given several times.
func WithAllowNet(hosts ...string) SandboxOption {
	return option(func(s *settings) { s.allowNet = append(s.allowNet, hosts...) })
}

// WithNetLimits limits the network of WithAllowNet, as the command line's --net-limit does:
// "connections=100", "new=10/s", "out=50M", "in=1G", "rate=1M/s". A lower limit of the server's
// configuration counts (network.limits). It can be given several times, each limit once.
func WithNetLimits(limits ...string) SandboxOption {
	return option(func(s *settings) { s.netLimits = append(s.netLimits, limits...) })
}

// WithAsk lets an open of a listed file, or of the name of a host, wait for AnswerAsk before it is
// refused, for 1 s to 1 h. Default: it is refused at once.
func WithAsk(timeout time.Duration) SandboxOption {
	return option(func(s *settings) { s.ask = timeout })
}

// WithGit gives commands a git repository without anything that the policy hides, in place of the
// directory's: "clean" with the last 50 commits, "clean:DEPTH" with another number, "clean:all"
// with all. Commits lists what commands commit, and ApplyCommits brings it back. It needs a linked
// directory that is the top of a repository, and no limit of the disk.
func WithGit(repository string) SandboxOption {
	return option(func(s *settings) { s.repository = repository })
}

// WithBoard lets programs inside lock paths for the sandbox, and exchange messages with the other
// sandboxes of the codebase, over the socket /run/agentfense/board.socket.
func WithBoard() SandboxOption {
	return option(func(s *settings) { s.board = true })
}

// WithPublish shows ports inside at an address 127.0.0.N of the server's host: "3000", or
// "8080:3000" with another port of the host. The server's configuration must allow it
// (network.publish). It can be given several times.
func WithPublish(ports ...string) SandboxOption {
	return option(func(s *settings) { s.publish = append(s.publish, ports...) })
}

// WithMount shows the sandbox a directory of the server's host besides its workspace. The server's
// configuration must list a directory above it (mounts.roots). It can be given several times.
func WithMount(m Mount) SandboxOption {
	return option(func(s *settings) { s.mounts = append(s.mounts, m) })
}

// WithScratch makes directories of the workspace scratch directories, such as "node_modules": their
// contents stay with the sandbox, and are neither reviewed nor applied. The rules must let
// everything in them be written. It can be given several times.
func WithScratch(dirs ...string) SandboxOption {
	return option(func(s *settings) { s.scratch = append(s.scratch, dirs...) })
}

// WithSecrets lets the sandbox's commands use secrets of the server's configuration, which they do
// not know: the variables with these names have placeholders. It can be given several times.
func WithSecrets(names ...string) SandboxOption {
	return option(func(s *settings) { s.secrets = append(s.secrets, names...) })
}

// WithUser sets the uid of commands inside, for the bwrap runtime: 0 is root, without any
// capability. Default: an ordinary user, 1000 if root runs the server.
func WithUser(uid uint32) SandboxOption {
	return option(func(s *settings) { s.user = strconv.FormatUint(uint64(uid), 10) })
}

// WithGitUser sets user.name and user.email for git inside. Default: those of this user's git
// configuration. With two empty strings neither is set.
func WithGitUser(name, email string) SandboxOption {
	return option(func(s *settings) { s.git = &gitconfig.User{Name: name, Email: email} })
}

// WithResources sets the sandbox's limits. A second WithResources replaces the first.
func WithResources(l ResourceLimits) SandboxOption {
	return option(func(s *settings) { s.limits = l })
}

// WithExpiresIn stops the sandbox after this time, and removes it unless it has changes that were
// not applied. Default: as the server is configured.
func WithExpiresIn(after time.Duration) SandboxOption {
	return option(func(s *settings) { s.expiresIn = after })
}

// WithoutStart creates the sandbox without starting it.
func WithoutStart() SandboxOption {
	return option(func(s *settings) { s.leaveStopped = true })
}

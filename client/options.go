package client

import (
	"io"
	"strconv"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
)

// Options are values of the interfaces below, one for each family of calls. An
// option fits the calls whose interface it has, and no others.

// Option says how a server is reached: New, Connect, FromCodebase, FromLocal.
type Option interface {
	FromOption
	connects()
}

// FromOption is an option of FromCodebase, and of FromLocal.
type FromOption interface {
	LocalOption
	takesCodebase()
}

// LocalOption is an option of FromLocal.
type LocalOption interface {
	set(*settings)
	takesDirectory()
}

// SandboxOption says what a sandbox is: CreateSandbox, FromCodebase, FromLocal.
type SandboxOption interface {
	FromOption
	makesSandbox()
}

// LinkOption is an option of LinkCodebase.
type LinkOption interface {
	set(*settings)
	links()
}

// ListOption says which sandboxes are listed: Sandboxes.
type ListOption interface {
	set(*settings)
	lists()
}

// RunOption says how a command runs: Sandbox.Run, Sandbox.ExecStream,
// Sandbox.ExecDetached.
type RunOption interface {
	set(*settings)
	runs()
}

// AttachOption says how a program runs: Attach.
type AttachOption interface {
	set(*settings)
	attaches()
}

// ResumeOption is an option of Resume.
type ResumeOption interface {
	set(*settings)
	resumes()
}

// AuditOption says which records are told: Audit.
type AuditOption interface {
	set(*settings)
	tells()
}

// SessionOption says how a session starts: Sandbox.Session.
type SessionOption interface {
	set(*settings)
	opensSession()
}

// SessionRunOption says how a command of a session runs: Session.Exec,
// Session.ExecStream, Session.ExecDetached.
type SessionRunOption interface {
	set(*settings)
	runsInSession()
}

// settings are what options set. A call reads those that its options can set.
type settings struct {
	endpoint, token, program string
	ca, cert, key            string

	codebaseName, ownerID string
	ignoreFiles           bool
	atHostPath            bool
	ignore                []string
	link                  *bool // nil: as it is best

	codebaseID, name string
	usage            bool
	sync             SyncMode
	preset           string
	rules            []PermissionRule
	policy           *Policy // in the place of preset and rules
	labels           map[string]string
	runtime          RuntimeType
	image            string
	user             string
	home             Home
	git              *gitconfig.User // nil: this user's own, in the directory dir
	dir              string          // that FromLocal was given; else ""
	limits           ResourceLimits
	expiresIn        time.Duration
	leaveStopped     bool

	stdin   io.Reader
	env     map[string]string
	workdir string
	timeout time.Duration
	detach  bool
	shell   string

	stdout, stderr         io.Writer
	terminal               bool
	rows, columns          uint16
	stdoutFrom, stderrFrom int64

	follow bool
	events []string
	after  uint64
	since  time.Time
}

// collect is what a call's options set.
func collect[O interface{ set(*settings) }](options []O) *settings {
	s := &settings{}
	for _, o := range options {
		o.set(s)
	}
	return s
}

// option is every option. What a With… function returns says which calls it
// fits.
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

// WithEndpoint names the server: HOST:PORT, http://, https:// or unix:///PATH.
// Without it: $AGENTFENSE_ENDPOINT, else this user's server. Another host is
// spoken to by TLS alone.
func WithEndpoint(endpoint string) Option {
	return option(func(s *settings) { s.endpoint = endpoint })
}

// WithToken is what is shown with each call. Without it: $AGENTFENSE_TOKEN, else
// the content of the file $AGENTFENSE_TOKEN_FILE, else the token of this user's
// own server, which is shown to that server alone.
func WithToken(token string) Option {
	return option(func(s *settings) { s.token = token })
}

// WithTLS names PEM files: the authority that signed the server's certificate,
// the client's certificate and its key. Without it, and where one is "":
// $AGENTFENSE_TLS_CA, $AGENTFENSE_TLS_CERT, $AGENTFENSE_TLS_KEY.
func WithTLS(ca, cert, key string) Option {
	return option(func(s *settings) { s.ca, s.cert, s.key = ca, cert, key })
}

// WithProgram names the agentfense that is started where there is no server.
// Without it: $AGENTFENSE_BINARY, else the one on the PATH.
func WithProgram(path string) Option {
	return option(func(s *settings) { s.program = path })
}

// WithCodebaseName names the codebase that is made. Without it: as the directory.
func WithCodebaseName(name string) interface {
	LinkOption
	LocalOption
} {
	return option(func(s *settings) { s.codebaseName = name })
}

// WithOwnerID names the owner of the codebase that is made. Without it: the token's
// owner, or this user if the token has none. For a listing it names the owner whose
// sandboxes are listed.
func WithOwnerID(ownerID string) interface {
	LinkOption
	LocalOption
	ListOption
} {
	return option(func(s *settings) { s.ownerID = ownerID })
}

// WithIgnoreFiles leaves out of a linked directory's view what an upload would:
// what the default patterns, .gitignore and .sandboxignore say. It does nothing
// where FromLocal uploads.
func WithIgnoreFiles() interface {
	LinkOption
	LocalOption
} {
	return option(func(s *settings) { s.ignoreFiles = true })
}

// WithIgnorePatterns leaves out of an upload also what patterns in the form of a
// .gitignore say. The directory is then uploaded, wherever the server is.
func WithIgnorePatterns(patterns ...string) LocalOption {
	return option(func(s *settings) { s.ignore = append(s.ignore, patterns...) })
}

// WithLink has the directory linked, which the server has to see at the same
// path.
func WithLink() LocalOption {
	return option(func(s *settings) { s.link = new(true) })
}

// WithUpload has the directory uploaded, wherever the server is.
func WithUpload() LocalOption {
	return option(func(s *settings) { s.link = new(false) })
}

// WithName names a sandbox, for the command line; of a listing, the one that is
// looked for.
func WithName(name string) interface {
	SandboxOption
	ListOption
} {
	return option(func(s *settings) { s.name = name })
}

// WithSync says when what a sandbox changes reaches an uploaded codebase. Without it:
// as the server is configured, and of FromLocal by Apply alone.
func WithSync(mode SyncMode) SandboxOption {
	return option(func(s *settings) { s.sync = mode })
}

// WithLabels gives a sandbox labels; of a listing, those that a sandbox has to
// have, all of them. A second one replaces the first.
func WithLabels(labels map[string]string) interface {
	SandboxOption
	ListOption
} {
	return option(func(s *settings) { s.labels = labels })
}

// WithUsage asks of each sandbox that is listed what it holds: SandboxInfo.Usage. The
// server looks at up to 2000 entries of each.
func WithUsage() ListOption {
	return option(func(s *settings) { s.usage = true })
}

// WithCodebaseID lists the sandboxes of one codebase.
func WithCodebaseID(id string) ListOption {
	return option(func(s *settings) { s.codebaseID = id })
}

// WithPreset begins the rules with those of a preset. Without it, and without
// WithPolicy, it is DefaultPreset.
func WithPreset(name string) SandboxOption {
	return option(func(s *settings) { s.preset = name })
}

// WithPermissions adds rules to those of the preset. Rules without a preset are
// a Policy's: WithPolicy.
func WithPermissions(rules ...PermissionRule) SandboxOption {
	return option(func(s *settings) { s.rules = append(s.rules, rules...) })
}

// WithRuntime says what confines the sandbox. Without it: as the server has it.
func WithRuntime(r RuntimeType) SandboxOption {
	return option(func(s *settings) { s.runtime = r })
}

// WithImage names the image of the docker runtime. Without it: as the server
// has it.
func WithImage(image string) SandboxOption {
	return option(func(s *settings) { s.image = image })
}

// WithHome says which home directory the sandbox's commands have. Without it:
// HomePrivate. A kept one counts to the limits of the disk, and is never applied.
func WithHome(home Home) SandboxOption {
	return option(func(s *settings) { s.home = home })
}

// WithUser says who commands are inside, by number, of the bwrap runtime: 0 is root,
// without any capability. Without it: an ordinary user, 1000 where root runs the
// server.
func WithUser(uid uint32) SandboxOption {
	return option(func(s *settings) { s.user = strconv.FormatUint(uint64(uid), 10) })
}

// WithGitUser says who a git inside takes itself for: its user.name and user.email.
// Without it: what this user's own configuration of git says. Two empty strings pass on
// neither.
func WithGitUser(name, email string) SandboxOption {
	return option(func(s *settings) { s.git = &gitconfig.User{Name: name, Email: email} })
}

// WithResources bounds the sandbox. A second one replaces the first.
func WithResources(l ResourceLimits) SandboxOption {
	return option(func(s *settings) { s.limits = l })
}

// WithExpiresIn has the sandbox stopped after a while, and removed unless it has
// changes that were not applied. Without it: as the server has it.
func WithExpiresIn(after time.Duration) SandboxOption {
	return option(func(s *settings) { s.expiresIn = after })
}

// WithoutStart makes the sandbox and does not start it.
func WithoutStart() SandboxOption {
	return option(func(s *settings) { s.leaveStopped = true })
}

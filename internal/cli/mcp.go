package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// MCPOptions are mcpserver.Options.
type MCPOptions struct {
	Backend         backend.Backend
	Open            func(ctx context.Context) (backend.Sandbox, error)
	RequestApply    func(ctx context.Context, name, message string) (digest string, changes int, err error)
	RequestAccess   func(ctx context.Context, name string, a api.Ask) (api.Decision, error)
	Entered         func(ctx context.Context, sb backend.Sandbox) (left func())
	Keep            func(ctx context.Context, name string)
	Warn            func(error)
	Workspace, Here string
	CommandNote     string
	MaxOutputBytes  int64
	Timeout         time.Duration
	Version         string
	Stdin, Stdout   *os.File
	HTTP, Token     string
	Ready           func(address string)
}

type mcpOptions struct {
	sandboxOptions
	HTTP      string
	MaxOutput bytesValue
}

// Defaults of mcp.
const (
	mcpOutput  = 64 << 10
	mcpTimeout = 10 * time.Minute
)

// mcpTokenFile is in the directory of a sandbox: a token is for that one alone.
const mcpTokenFile = "mcp-token"

func newMCP(e *env) *cobra.Command {
	o := mcpOptions{MaxOutput: mcpOutput}
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Serve a sandbox to an agent over the Model Context Protocol",
		Long: `Serve a sandbox of a directory to an agent over the Model Context Protocol (MCP), on
standard input and output, or with --http on a loopback address.

The agent gets tools that run commands, read, write and list files, show the changes,
explain the policy, and ask you for more access (with --ask) and to apply the changes.
With --board they also lock paths and exchange messages with other sandboxes.
All of them act in the sandbox. No tool changes the policy or applies changes: you do that
with agentfense policy ask, agentfense review and agentfense apply.

The sandbox is made when a tool needs it first. It has the name --name, or one made
from the directory's, and stays when the server ends: the next server continues in it.
--timeout limits each command (default 10m). With --endpoint the directory is uploaded
when the sandbox is made, and the tools act on the server.`,
		Example: `  claude mcp add agentfense -- agentfense mcp --preset development
  agentfense mcp --dir ~/project --http 127.0.0.1:8765`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMCP(e, cmd, o) },
	}
	o.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "name of the sandbox, new or known (default: made from the directory)")
	f.StringVar(&o.HTTP, "http", "", "listen at the loopback address `HOST:PORT`, not on standard input; port 0: any")
	f.Var(&o.MaxOutput, "max-output", "return at most so much of an output, a file or a diff, such as 64K")
	marked(cmd)
	return cmd
}

func runMCP(e *env, cmd *cobra.Command, o mcpOptions) error {
	if e.parts == nil {
		return executable.ExecServer()
	}
	if err := errors.Join(checkMCPServer(e, cmd), o.checkMCP()); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	cmd.SetContext(ctx)
	return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
		home, err := e.openHome()
		if err != nil {
			return err
		}
		source, err := o.prepareMCP(e, cmd, b, home)
		if err != nil {
			return err
		}
		options := o.options(e, cmd, b, home)
		options.Workspace = string(source.Path)
		if o.HTTP != "" {
			end, err := o.prepareHTTP(ctx, e, b, home, &options)
			if err != nil {
				return err
			}
			defer end()
		}
		return e.parts.MCP(ctx, options)
	})
}

// options are those of the server of tools.
func (o *mcpOptions) options(e *env, cmd *cobra.Command, b backend.Backend, home *record.Home) MCPOptions {
	options := MCPOptions{
		Backend: b, Here: currentDir(), Warn: e.warnOf,
		Open: func(ctx context.Context) (backend.Sandbox, error) { return o.openMCP(ctx, e, cmd, b) },
		Keep: func(ctx context.Context, name string) { e.keep(ctx, b, name) },
		RequestApply: func(ctx context.Context, name, message string) (string, int, error) {
			digest, n, err := requestApply(ctx, b, name)
			if err != nil || n == 0 || e.address() != "" { // a server has no record of it
				return digest, n, err
			}
			sb, err := home.Open(name)
			if err != nil {
				return "", 0, err
			}
			return digest, n, sb.Log(audit.ApplyRequested{Digest: digest, Changes: n, Message: audit.Text(message)})
		},
		RequestAccess: func(ctx context.Context, name string, a api.Ask) (api.Decision, error) {
			if e.address() != "" {
				return api.Decision{}, errdefs.New(errdefs.Unsupported, "a sandbox on a server takes no questions in advance: with --ask, a command that is refused waits for the user's answer")
			}
			return requestAccess(ctx, home, name, a)
		},
		Entered: func(ctx context.Context, sb backend.Sandbox) (left func()) {
			if sb.Record.Ask == nil {
				return func() {}
			}
			return e.startAsker(ctx, b, sb, nil)
		},
		MaxOutputBytes: int64(o.MaxOutput), Timeout: mcpTimeout, Version: executable.Version(),
		Stdin: e.stdin, Stdout: e.stdout,
	}
	if e.address() != "" {
		options.CommandNote = "The sandbox is on a server: the user adds --endpoint to these commands, as this server was started."
	}
	if o.Timeout > 0 {
		options.Timeout = o.Timeout
	}
	return options
}

// checkMCPServer refuses a server that the environment names. A project's configuration of MCP
// servers can set variables, and the project would be uploaded there. A flag is looked at, see
// checkMCPConfig.
func checkMCPServer(e *env, cmd *cobra.Command) error {
	if e.address() == "" || cmd.Flags().Changed("endpoint") {
		return nil
	}
	return usageError{errdefs.New(errdefs.Invalid, "mcp: AGENTFENSE_ENDPOINT does not count here, because a project's configuration of MCP servers can set it: give --endpoint, or unset the variable")}
}

func (o *mcpOptions) checkMCP() error {
	const least = 1 << 10
	if o.MaxOutput < least {
		return usageError{errdefs.New(errdefs.Invalid, "--max-output %s: want at least 1K", o.MaxOutput.String())}
	}
	if o.Codebase != "" {
		return usageError{errdefs.New(errdefs.Invalid, "mcp: --codebase: mcp serves a directory: leave it out")}
	}
	if o.HTTP == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(o.HTTP)
	if err != nil {
		return usageError{errdefs.New(errdefs.Invalid, "--http %s: want HOST:PORT, such as 127.0.0.1:8765", vpath.Quote(o.HTTP))}
	}
	if addr, err := netip.ParseAddr(host); err != nil || !addr.IsLoopback() {
		return usageError{errdefs.New(errdefs.Invalid, "--http %s: want a loopback address, such as 127.0.0.1:8765 or [::1]:8765", vpath.Quote(o.HTTP))}
	}
	return nil
}

// prepareMCP refuses what no sandbox can be made of, before a client waits for an answer, and
// names the sandbox.
func (o *mcpOptions) prepareMCP(e *env, cmd *cobra.Command, b backend.Backend, home *record.Home) (record.Source, error) {
	source, err := o.source(home)
	if err != nil {
		return source, err
	}
	if err := e.checkMCPConfig(home, string(source.Path), cmd); err != nil {
		return source, err
	}
	if o.Name == "" {
		o.Name = nameFor("mcp", string(source.Path))
	}
	if _, err := o.described(cmd, b, true, nil); err != nil {
		return source, err
	}
	return source, o.checkRules(cmd.Context(), e, cmd, b, home, source)
}

// checkRules refuses rules that openOrCreate will refuse when it is called: the person is to know
// before an agent waits for it.
func (o *sandboxOptions) checkRules(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, home *record.Home, source record.Source) error {
	_, err := b.Sandbox(ctx, o.Name)
	switch {
	case err == nil && !changed(cmd, policyFlags): // it has its own
		return nil
	case err != nil && !errdefs.Is(err, errdefs.NotFound):
		return err
	case err != nil:
		if err := o.confirmBroad(e, string(source.Path)); err != nil {
			return err
		}
	}
	_, err = o.newRules(e, home, string(source.Path), local.IsDirBelow(string(source.Path)))
	return err
}

// openMCP finds or makes the sandbox.
func (o *mcpOptions) openMCP(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend) (sb backend.Sandbox, err error) {
	env, err := o.addToolchains(ctx, e, cmd, b, nil)
	if err == nil {
		sb, _, err = o.openOrCreate(ctx, e, cmd, b, env)
	}
	if err == nil {
		err = e.sayUnshown(ctx, b, sb)
	}
	return sb, err
}

// prepareHTTP makes the sandbox and the token that is for it alone. That of a sandbox on a server
// is stored here until end is called.
func (o *mcpOptions) prepareHTTP(ctx context.Context, e *env, b backend.Backend, home *record.Home, options *MCPOptions) (end func(), err error) {
	sb, err := options.Open(ctx)
	if err != nil {
		return nil, err
	}
	end = func() {}
	var file string
	if e.address() != "" {
		dir, err := os.MkdirTemp(home.Dir(), "mcp-")
		if err != nil {
			return nil, record.HostError("token of mcp", err)
		}
		end = func() { _ = os.RemoveAll(dir) }
		file = filepath.Join(dir, mcpTokenFile)
	} else {
		inspection, err := b.Inspect(ctx, sb.Ref())
		if err != nil {
			return nil, err
		}
		file = filepath.Join(string(inspection.Directory), mcpTokenFile)
	}
	if options.Token, err = e.parts.MakeToken(file); err != nil {
		end()
		return nil, err
	}
	options.HTTP = o.HTTP
	options.Ready = func(address string) {
		fmt.Fprintf(e.stdout, "mcp http://%s/mcp\ntoken %s\n", address, record.HostPath(file))
	}
	return end, nil
}

// nameFor is the name of a sandbox of dir for a purpose, the same each time: the directory's name,
// as far as a sandbox may have it, and a part of the digest of its path.
func nameFor(purpose, dir string) string {
	const most = 30
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, filepath.Base(dir))
	digest := sha256.Sum256([]byte(dir))
	return purpose + "-" + plain[:min(len(plain), most)] + "-" + hex.EncodeToString(digest[:4])
}

// requestApply stores the state of all changes in the workspace of a sandbox under its digest. It
// does not count as shown to the person.
func requestApply(ctx context.Context, b backend.Backend, name string) (digest string, n int, err error) {
	c, err := b.Changes(ctx, name, "", nil)
	if err != nil {
		return "", 0, err
	}
	r, err := c.Review(ctx, nil, backend.Contents)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	files := slices.DeleteFunc(slices.Clone(r.Files()), func(f review.FileDiff) bool { return f.LeftOut != "" })
	if n = len(files); n == 0 {
		return "", 0, nil
	}
	if err := present.Patch(io.Discard, r.Review, present.PatchOptions{}); err != nil { // it reads the contents
		return "", 0, err
	}
	digest, err = r.Remember()
	return digest, n, err
}

// requestAccess asks whoever answers the asks of a running sandbox.
func requestAccess(ctx context.Context, home *record.Home, name string, a api.Ask) (api.Decision, error) {
	sb, err := home.Open(name)
	if err != nil {
		return api.Decision{}, err
	}
	return api.At(sb.Dir()).Request(ctx, a)
}

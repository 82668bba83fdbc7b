package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// Parts are what only the program agentfense-server has, which serves and talks
// to servers: the program that is started for every sandbox must stay light.
type Parts struct {
	// Serve runs a server until ctx ends.
	Serve func(ctx context.Context, o ServerOptions) error
	// Dial is the server at an endpoint, which it connects to when something is asked of
	// it. openHome opens the state directory of this host.
	Dial func(at endpoint.Endpoint, openHome func() (*record.Home, error)) (backend.Server, error)
	// Tokens opens the tokens of the server with a configuration.
	Tokens func(ctx context.Context, c *config.Config) (backend.Tokens, error)
	// ReadToken reads a file that holds a token. Errors: NotFound;
	// Precondition for one that others can read.
	ReadToken func(path string) (string, error)
	// MakeToken is ReadToken that makes a file which does not exist, with a new token.
	MakeToken func(path string) (string, error)
	// MCP serves a sandbox to a client of the Model Context Protocol until that leaves or ctx ends.
	MCP func(ctx context.Context, o MCPOptions) error
	// Review shows a person what changed. PickReview asks which sandbox is meant, and returns
	// "" for none.
	Review     func(ctx context.Context, o ReviewOptions) error
	PickReview func(ctx context.Context, in, out *os.File, choices []ReviewChoice) (string, error)
	// Export writes what a sandbox changed to a new file in one of the formats.
	Export func(ctx context.Context, s *record.Sandbox, file, format string) (ExportResult, error)
	// Import opens a file that Export could have written as agentfs.
	Import func(ctx context.Context, file string) (*Import, error)
	// Query answers an SQL statement about a sandbox.
	Query func(ctx context.Context, s *record.Sandbox, statement string, b QueryBounds) (QueryRows, error)
}

// ServerOptions are daemon.Options.
type ServerOptions struct {
	Config *config.Config
	Home   *record.Home
	NoAuth bool
	Log    *slog.Logger
	// IdleExit, if not 0, ends the server when nobody has needed it for as long.
	IdleExit time.Duration
	Ready    func(grpcAddr, httpAddr string)
}

// ServerMain is Main of the program that has the parts.
func ServerMain(args []string, parts Parts) int {
	e := newEnv()
	light, err := executable.Light() // what is started for a sandbox
	if err != nil {
		e.say("%s", oneLine(err))
		return exitCode(err, true)
	}
	launch.UseProgram(light)
	e.parts = &parts
	return e.main(args)
}

type serveOptions struct {
	Config   string
	NoAuth   bool
	IdleExit time.Duration
}

func newServe(e *env) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve sandboxes to programs over gRPC and REST",
		Long: `Serve sandboxes to programs over gRPC and REST until SIGINT or SIGTERM.
Running sandboxes continue without the server, and the next one finds them.

Programs show the token of the state directory (file "token") as
"authorization: Bearer TOKEN". When the server answers calls, it prints its
addresses on stdout. It logs on stderr. While it serves, the file "server.json" of
the state directory has the addresses, too.`,
		Example: `  agentfense serve
  agentfense serve --config /etc/agentfense/agentfense.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runServe(cmd.Context(), e, o)
		},
	}
	cmd.Flags().StringVar(&o.Config, "config", "", "configuration `FILE` (default: none)")
	cmd.Flags().BoolVar(&o.NoAuth, "no-auth", false, "ask for no token; only where the server listens on loopback addresses")
	cmd.Flags().DurationVar(&o.IdleExit, "idle-exit", 0, "end when no client was connected for `DURATION` and no sandbox is to expire; 0: never")
	cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

func runServe(ctx context.Context, e *env, o serveOptions) error {
	if e.parts == nil {
		return executable.ExecServer()
	}
	if o.IdleExit < 0 {
		return usageError{errdefs.New(errdefs.Invalid, "--idle-exit %s: want a duration of at least 0", o.IdleExit)}
	}
	c, err := config.Load(o.Config, os.Environ())
	if err != nil {
		return err
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	return e.parts.Serve(ctx, ServerOptions{
		Config: c, Home: home, NoAuth: o.NoAuth, IdleExit: o.IdleExit, Log: e.logger(c.Logging),
		Ready: func(grpcAddr, httpAddr string) {
			fmt.Fprintf(e.stdout, "grpc %s\n", grpcAddr)
			if httpAddr != "" {
				fmt.Fprintf(e.stdout, "http %s\n", httpAddr)
			}
		},
	})
}

// logger is the server's log.
func (e *env) logger(l config.Logging) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(e.stderr, o))
	}
	return slog.New(slog.NewTextHandler(e.stderr, o))
}

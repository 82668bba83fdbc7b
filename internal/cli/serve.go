package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/daemon"
)

type serveOptions struct {
	Config string
	NoAuth bool
}

func newServe(e *env) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve sandboxes to programs over gRPC and REST",
		Long: `Serve sandboxes to programs over gRPC and REST until SIGINT or SIGTERM.
Sandboxes that run go on without the server, and the next one finds them.

Programs show the token of the state directory (file "token") as
"authorization: Bearer TOKEN". The addresses that are listened on are printed on
stdout once calls are answered, the log goes to stderr.`,
		Example: `  agentfense serve
  agentfense serve --config /etc/agentfense/agentfense.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runServe(cmd.Context(), e, o)
		},
	}
	cmd.Flags().StringVar(&o.Config, "config", "", "configuration `FILE` (default: none)")
	cmd.Flags().BoolVar(&o.NoAuth, "no-auth", false, "ask for no token; only where the server listens on loopback addresses")
	cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

func runServe(ctx context.Context, e *env, o serveOptions) error {
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
	return daemon.Run(ctx, daemon.Options{
		Config: c, Home: home, NoAuth: o.NoAuth, Log: e.logger(c.Logging),
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

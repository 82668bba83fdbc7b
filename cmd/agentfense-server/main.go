// Command agentfense-server is the server, and the verbs of the command line that use a server.
// Only agentfense starts it (package executable).
package main

import (
	"context"
	"os"

	"github.com/agentfense/agentfense/internal/cli"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/mcpserver"
	"github.com/agentfense/agentfense/internal/cli/remote"
	"github.com/agentfense/agentfense/internal/cli/reviewui"
	"github.com/agentfense/agentfense/internal/cli/tokenstore"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/sandbox/portable"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/daemon"
)

func init() { executable.SetName() }

func main() {
	if len(os.Args) > 1 && os.Args[1] == query.Verb {
		os.Exit(query.Main())
	}
	os.Exit(cli.ServerMain(os.Args[1:], cli.Parts{
		Serve: func(ctx context.Context, o cli.ServerOptions) error { return daemon.Run(ctx, daemon.Options(o)) },
		Dial: func(at endpoint.Endpoint, openHome func() (*record.Home, error)) (backend.Server, error) {
			client, err := remote.Open(at)
			if err != nil {
				return nil, err
			}
			return remote.New(client, openHome, os.Getenv), nil
		},
		Tokens:    tokenstore.Open,
		ReadToken: auth.ReadToken,
		MakeToken: auth.DefaultToken,
		MCP:       func(ctx context.Context, o cli.MCPOptions) error { return mcpserver.Run(ctx, mcpserver.Options(o)) },
		Review:    func(ctx context.Context, o cli.ReviewOptions) error { return reviewui.Run(ctx, reviewui.Options(o)) },
		PickReview: func(ctx context.Context, in, out *os.File, choices []cli.ReviewChoice) (string, error) {
			list := make([]reviewui.Choice, len(choices))
			for i, c := range choices {
				list[i] = reviewui.Choice(c)
			}
			return reviewui.Pick(ctx, in, out, list)
		},
		Export: export,
		Import: openImport,
		Query: func(ctx context.Context, s *record.Sandbox, statement string, b cli.QueryBounds) (cli.QueryRows, error) {
			rows, err := portable.Query(ctx, s, statement, query.Bounds(b))
			return cli.QueryRows(rows), err
		},
	}))
}

// export writes a file in one of the formats of the verb export.
func export(ctx context.Context, s *record.Sandbox, file, format string) (cli.ExportResult, error) {
	result, err := portable.Formats[format](ctx, s, file, portable.Options{})
	return cli.ExportResult(result), err
}

// openImport opens a file for the verb import.
func openImport(ctx context.Context, file string) (*cli.Import, error) {
	in, err := portable.OpenImport(ctx, file)
	if err != nil {
		return nil, err
	}
	return &cli.Import{
		Digest: in.Digest,
		Notes:  in.Notes,
		Fill: func(ctx context.Context, home *record.Home, r *record.Record, dir string, partial bool) (cli.ExportResult, error) {
			result, err := in.Fill(ctx, home, r, dir, partial)
			return cli.ExportResult(result), err
		},
		Close: in.Close,
	}, nil
}

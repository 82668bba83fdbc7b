// Command server is what `agentfense serve` and the verbs that ask a server
// become: the command line with the server and its client linked in. make build
// joins it to the other program's file (package bundle); it is never installed
// by itself.
package main

import (
	"context"
	"os"

	"github.com/agentfense/agentfense/internal/bundle"
	"github.com/agentfense/agentfense/internal/cli"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/daemon"
	"github.com/agentfense/agentfense/internal/endpoint"
	"github.com/agentfense/agentfense/internal/remote"
)

func init() { bundle.Name() }

func main() {
	os.Exit(cli.ServerMain(os.Args[1:], cli.Parts{
		Serve: func(ctx context.Context, o cli.ServerOptions) error { return daemon.Run(ctx, daemon.Options(o)) },
		Dial: func(ctx context.Context, at endpoint.Endpoint) (control.Server, error) {
			return remote.Dial(ctx, at)
		},
		Tokens:    daemon.OpenTokens,
		ReadToken: daemon.ReadToken,
	}))
}

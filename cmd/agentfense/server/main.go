// Command server is what `agentfense serve` becomes: the command line with the
// server linked in. make build joins it to the other program's file (package
// bundle); it is never installed by itself.
package main

import (
	"context"
	"os"

	"github.com/agentfense/agentfense/internal/cli"
	"github.com/agentfense/agentfense/internal/daemon"
)

func main() {
	os.Exit(cli.ServerMain(os.Args[1:], func(ctx context.Context, o cli.ServerOptions) error {
		return daemon.Run(ctx, daemon.Options(o))
	}))
}

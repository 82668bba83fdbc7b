// Command agentfense is the command line, the supervisor of one sandbox, and PID 1 and the exec
// leaders inside. For everything that needs a server it executes agentfense-server, the program
// beside it (package executable).
package main

import (
	"os"

	"github.com/agentfense/agentfense/internal/cli"
	"github.com/agentfense/agentfense/internal/confine/egress"
	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/inner/shim"
	"github.com/agentfense/agentfense/internal/confine/isolate/fdpass"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/narrow"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/overlay"
)

func init() { executable.SetName() }

func main() {
	if shim.IsCalled() {
		os.Exit(shim.Main(os.Args[1:]))
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case guest.InitVerb:
			guest.Main()
			return
		case fdpass.Verb:
			fdpass.Main(os.Args[2:])
			return
		case guest.ExecVerb:
			guest.ExecMain()
			return
		case egress.Verb:
			os.Exit(egress.Main())
		case overlay.Verb:
			os.Exit(overlay.Main())
		case narrow.Verb:
			os.Exit(narrow.Main())
		case launch.ProbeVerb:
			os.Exit(supervise.ProbeMain(os.Args[2:]))
		case launch.Verb:
			os.Exit(supervise.Main(os.Args[2:]))
		}
	}
	os.Exit(cli.Main(os.Args[1:]))
}

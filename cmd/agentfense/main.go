// Command agentfense is every part of agentfense in one binary: the command
// line, the supervisor of one sandbox, and PID 1 and the exec leaders inside.
package main

import (
	"os"

	"github.com/agentfense/agentfense/internal/bundle"
	"github.com/agentfense/agentfense/internal/cli"
	"github.com/agentfense/agentfense/internal/guest"
	"github.com/agentfense/agentfense/internal/isolate/handover"
	"github.com/agentfense/agentfense/internal/supervise"
)

func init() { bundle.Name() }

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case guest.InitVerb:
			guest.Main()
			return
		case handover.Verb:
			handover.Main(os.Args[2:])
			return
		case guest.ExecVerb:
			guest.ExecMain()
			return
		case supervise.Verb:
			os.Exit(supervise.Main(os.Args[2:]))
		}
	}
	os.Exit(cli.Main(os.Args[1:]))
}

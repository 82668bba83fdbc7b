// Package mcpserver serves one sandbox to a client of the Model Context Protocol, over standard
// input and output or over HTTP.
//
// The other side is a model, and what it read may have been written by an attacker. So a tool does
// what a command inside the sandbox could do, and tells what such a command could learn: paths are
// paths of the view, and hidden ones do not exist. No tool changes the policy, applies changes or,
// but for locks and messages, acts on another sandbox. What a person must decide is recorded, and
// the person decides outside.
//
// The sandbox is found or made when a tool needs it first, and runs until the server ends.
package mcpserver

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Options are what a server needs. None of them may be missing but HTTP and what belongs to it.
type Options struct {
	Backend backend.Backend
	// Open finds or makes the sandbox. It is called again after an error.
	Open func(ctx context.Context) (backend.Sandbox, error)
	// RequestApply records that a person is asked to apply what the sandbox changed.
	RequestApply func(ctx context.Context, name, message string) (digest string, changes int, err error)
	// RequestAccess asks a person for access, and waits for the answer. Entered is called when the
	// sandbox runs for us; asks are answered until the function that it returns is called.
	RequestAccess func(ctx context.Context, name string, a api.Ask) (api.Decision, error)
	Entered       func(ctx context.Context, sb backend.Sandbox) (left func())
	// Keep is called after each command: it applies what rules with apply: keep match.
	Keep func(ctx context.Context, name string)
	// Warn is told what the person at the server's standard error should know.
	Warn func(error)
	// Workspace is the path of the project directory inside. Here is the directory of this host in
	// which commands start, if it is inside.
	Workspace, Here string
	// CommandNote is what a person must know who runs a command that a tool returns; "": nothing.
	CommandNote    string
	MaxOutputBytes int64         // of a command's stdout, of its stderr, of a file and of a diff
	Timeout        time.Duration // of a command
	Version        string

	// Stdin and Stdout are used without HTTP.
	Stdin, Stdout *os.File
	// HTTP is the loopback address to listen at, "" for standard input and output. A client
	// shows Token. Ready gets the address of the listener.
	HTTP, Token string
	Ready       func(address string)
}

const instructions = `These tools act in a sandbox of the user's project directory. ` +
	`Commands and files there look as on the user's machine, with these differences. ` +
	`A policy decides what can be read and written; files that it hides do not exist. ` +
	`Changes are stored in the sandbox: the user's files stay as they are until the user has reviewed the changes and applies them. ` +
	`The network is closed, except for the hosts that the user has allowed. ` +
	`Paths are relative to the project directory. ` +
	`If something is refused, call explain once instead of trying again, and ask if the task needs more. When the work is done, call request_apply and tell the user the command that it returns.`

// service are the tools of one sandbox.
type service struct {
	o  Options
	sb sandbox
	// commands bounds how many run at once.
	commands chan struct{}
	// reviewing is held while changes are compared: that reads all of them.
	reviewing sync.Mutex
}

// maxCommands is how many commands of a server run at once. More of them wait.
const maxCommands = 8

// Run serves until the client leaves or, over HTTP, until ctx ends.
func Run(ctx context.Context, o Options) error {
	s := &service{o: o, sb: sandbox{o: &o}, commands: make(chan struct{}, maxCommands)}
	defer s.sb.leave()
	server := s.server()
	if o.HTTP != "" {
		return serveHTTP(ctx, server, &o)
	}
	err := server.Run(ctx, &mcp.IOTransport{Reader: o.Stdin, Writer: o.Stdout, MaxLineLength: maxMessageBytes})
	if ctx.Err() != nil {
		return nil // it was told to end
	}
	return err
}

// maxMessageBytes bounds a message of the client. It has room for a file of maxWriteBytes.
const maxMessageBytes = 16 << 20

func (s *service) server() *mcp.Server {
	server := mcp.NewServer(
		&mcp.Implementation{Name: "agentfense", Title: "agentfense sandbox", Version: s.o.Version},
		&mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}},
	)
	no := false
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	writes := &mcp.ToolAnnotations{OpenWorldHint: &no}
	addTool(server, &mcp.Tool{
		Name: "exec", Annotations: writes,
		Description: "Run a shell command in the sandbox, by bash if the sandbox has it, else by sh. Returns the exit code, the output and what the policy refused. Long output is cut in the middle.",
	}, s.exec)
	addTool(server, &mcp.Tool{
		Name: "read", Annotations: reads,
		Description: "Read a file of the sandbox. A file that is not UTF-8 is returned in base64. Read a long file in parts, with offset.",
	}, s.read)
	addTool(server, &mcp.Tool{
		Name: "write", Annotations: writes,
		Description: "Create or replace a file in the sandbox, with the directories above it.",
	}, s.write)
	addTool(server, &mcp.Tool{
		Name: "list", Annotations: reads,
		Description: "List a directory of the sandbox, with the permission of each entry.",
	}, s.list)
	addTool(server, &mcp.Tool{
		Name: "diff", Annotations: reads,
		Description: "Show what the sandbox changed and the user has not applied yet, or what changed since a snapshot or between two, as a unified diff.",
	}, s.diff)
	addTool(server, &mcp.Tool{
		Name: "snapshot", Annotations: writes,
		Description: "Keep the present state of the sandbox, to which restore can go back. Returns its name.",
	}, s.snapshot)
	addTool(server, &mcp.Tool{
		Name: "snapshots", Annotations: reads,
		Description: "List the snapshots of the sandbox as a tree.",
	}, s.snapshots)
	addTool(server, &mcp.Tool{
		Name: "restore", Annotations: writes,
		Description: "Bring the files of the sandbox back to a snapshot. What was there is kept as another snapshot. Ends background processes in the sandbox; works while no command runs.",
	}, s.restore)
	addTool(server, &mcp.Tool{
		Name: "explain", Annotations: reads,
		Description: "Show what the policy permits at paths, which need not exist: none, view (listed, not readable), read or write.",
	}, s.explain)
	addTool(server, &mcp.Tool{
		Name: "ask", Annotations: writes,
		Description: "Ask the user for permission to read or write one path, or to reach one host, with a reason. Waits for the answer, up to the time-out of the sandbox. Works if the user has started the server with --ask.",
	}, s.ask)
	addTool(server, &mcp.Tool{
		Name: "request_apply", Annotations: writes,
		Description: "Ask the user to review and apply the changes. Nothing is applied by this call. Returns the command that the user runs.",
	}, s.requestApply)
	addTool(server, &mcp.Tool{
		Name: "history", Annotations: reads,
		Description: "List what the user has applied of the sandbox's changes, and what was undone, the latest first.",
	}, s.history)
	addTool(server, &mcp.Tool{
		Name: "request_undo", Annotations: reads,
		Description: "Ask the user to take the last apply back. Nothing is undone by this call. Returns the command that the user runs.",
	}, s.requestUndo)
	s.boardTools(server, reads, writes)
	return server
}

// addTool adds a tool. Its errors name no command of agentfense, because a model works by tools.
func addTool[In, Out any](server *mcp.Server, t *mcp.Tool, handle mcp.ToolHandlerFor[In, Out]) {
	mcp.AddTool(server, t, func(ctx context.Context, r *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		result, out, err := handle(ctx, r, in)
		if err != nil {
			err = errors.New(errdefs.Plain(err))
		}
		return result, out, err
	})
}

package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

type logsOptions struct {
	Follow bool
	JSON   bool
}

func newLogs(e *env) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show what the detached commands of a sandbox wrote",
		Long: `Show the output of the commands that run --detach started in a sandbox, the oldest
first: what they wrote to standard output goes to standard output, and what they
wrote to standard error to standard error. A sandbox keeps the last 8 to 16 MB
until it is removed; starting and stopping it does not change that.

With --follow it continues with new output until the last of these commands ends.`,
		Example: `  agentfense logs fix
  agentfense logs --follow fix
  agentfense logs fix --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runLogs(ctx, e, b, args[0], o) })
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "continue with new output until the commands end")
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print one compact JSON object a line for each piece of output")
	return cmd
}

func runLogs(ctx context.Context, e *env, b backend.Backend, name string, o logsOptions) error {
	any := false
	show := func(ctx context.Context) error {
		return b.Logs(ctx, name, o.Follow, func(r outlog.Record) error {
			any = true
			if o.JSON {
				return printLogJSON(e.stdout, r)
			}
			return e.printLogged(r)
		})
	}
	run := show
	if o.Follow {
		run = func(ctx context.Context) error { return untilInterrupted(ctx, show) }
	}
	if err := run(ctx); err != nil || any || o.JSON {
		return err
	}
	e.say("%s: no command has run with --detach: there is no output to show", name)
	return nil
}

// printLogged prints what a command wrote, as it wrote it.
func (e *env) printLogged(r outlog.Record) error {
	to := io.Writer(e.stdout)
	if r.Stream == outlog.Stderr {
		to = e.stderr
	}
	if r.LostBytes > 0 {
		e.say("%d bytes of output are lost: the disk of the state directory was full", r.LostBytes)
	}
	_, err := to.Write(r.Data)
	return err
}

// loggedLine is one line of `logs --json`.
type loggedLine struct {
	SchemaVersion int       `json:"schema_version"`
	Time          time.Time `json:"time"`
	Exec          string    `json:"exec,omitempty"`
	// Command begins a command. Continued says that its beginning is kept no longer.
	Command   []string      `json:"command,omitempty"`
	Continued bool          `json:"continued,omitempty"`
	Stream    outlog.Stream `json:"stream,omitempty"`
	Text      string        `json:"text,omitempty"`
	Base64    string        `json:"base64,omitempty"`    // instead of text that is not UTF-8
	ExitCode  *int          `json:"exit_code,omitempty"` // ends a command; as run's exit code
	LostBytes int64         `json:"lost_bytes,omitempty"`
}

func printLogJSON(w io.Writer, r outlog.Record) error {
	if r.Opened || r.Over {
		return nil
	}
	line := loggedLine{
		SchemaVersion: schemaVersion, Time: r.Time, Exec: r.Exec, Continued: r.Again,
		Stream: r.Stream, LostBytes: r.LostBytes,
	}
	if x := r.Exit; x != nil {
		code := api.Exit{Code: x.Code, Signal: x.Signal, Reason: api.Reason(x.Reason)}.ExitCode()
		line.ExitCode = &code
	}
	for _, arg := range r.Argv {
		line.Command = append(line.Command, record.HostPath(arg).String())
	}
	if utf8.Valid(r.Data) {
		line.Text = string(r.Data)
	} else {
		line.Base64 = base64.StdEncoding.EncodeToString(r.Data)
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", vpath.EscapeJSON(text))
	return err
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/board"
)

func newBoard(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "board",
		Short: "Read and post messages of the sandboxes of one source",
		Long: `The sandboxes of one source share a board: short messages in topics, in one order. Each
message has its sender, which no text can set: the sandbox, and whether its agent or its
user posted it. Programs inside read and post messages if their sandbox was started with
--board.

Nothing that a message says is executed, and no message changes a policy.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newBoardLs(e), newBoardPost(e), newBoardRead(e))
	return cmd
}

// boardOf is the sandbox that args name. Without one, the current directory is meant, which is none
// of a server.
func (e *env) boardOf(args []string) (name string, err error) {
	if len(args) > 0 {
		return args[0], nil
	}
	if e.address() != "" {
		return "", usageError{errdefs.New(errdefs.Invalid, "with a server, name a sandbox of the source")}
	}
	return "", nil
}

// memberJSON is a sandbox that runs, for scripts.
type memberJSON struct {
	Sandbox string    `json:"sandbox"`
	ID      string    `json:"id"`
	Status  string    `json:"status,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of the status
}

type topicJSON struct {
	Topic    string    `json:"topic"`
	Messages int       `json:"messages"`
	LastSeq  uint64    `json:"last_seq"`
	LastTime time.Time `json:"last_time"`
}

func newBoardLs(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [NAME]",
		Short: "List the running sandboxes of a source, and the topics",
		Long: `List the running sandboxes of a source, each with its status: its last message in the
topic status, which says what it works on. Then list the topics. The source is that of the
sandbox NAME, or the current directory.`,
		Example: `  agentfense board ls fix
  agentfense board ls --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	jsonFlag(cmd, &asJSON)
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			name, err := e.boardOf(args)
			if err != nil {
				return err
			}
			state, err := b.BoardState(ctx, name, ".")
			if err != nil {
				return err
			}
			if asJSON {
				return e.printBoardJSON(state)
			}
			return e.printBoard(state)
		})
	}
	return cmd
}

func (e *env) printBoardJSON(s board.State) error {
	out := struct {
		SchemaVersion int          `json:"schema_version"`
		Members       []memberJSON `json:"members"`
		Topics        []topicJSON  `json:"topics"`
	}{schemaVersion, []memberJSON{}, []topicJSON{}}
	for _, m := range s.Members {
		j := memberJSON{Sandbox: m.Name, ID: string(m.ID)}
		if m.Status != nil {
			j.Status, j.Since = m.Status.Text, m.Status.Time
		}
		out.Members = append(out.Members, j)
	}
	for _, t := range s.Topics {
		out.Topics = append(out.Topics, topicJSON{t.Name, t.Messages, t.Last.Seq, t.Last.Time})
	}
	return e.printJSON(out)
}

// maxStatusShown is how much of a status a table has, in bytes.
const maxStatusShown = 100

func (e *env) printBoard(s board.State) error {
	if len(s.Members) == 0 && len(s.Topics) == 0 {
		e.say("no sandbox of the source runs, and there are no messages")
		return nil
	}
	var rows [][]string
	for _, m := range s.Members {
		status, since := "", ""
		if m.Status != nil {
			status, since = cutText(m.Status.Text), present.LocalTime(m.Status.Time)
		}
		rows = append(rows, []string{m.Name, since, status})
	}
	if len(rows) > 0 {
		if err := printTable(e.stdout, []string{"SANDBOX", "SINCE", "STATUS"}, rows); err != nil || len(s.Topics) == 0 {
			return err
		}
		fmt.Fprintln(e.stdout)
	}
	rows = nil
	for _, t := range s.Topics {
		rows = append(rows, []string{t.Name, strconv.Itoa(t.Messages), present.LocalTime(t.Last.Time), cutText(t.Last.Text)})
	}
	return printTable(e.stdout, []string{"TOPIC", "MESSAGES", "LAST", "TEXT"}, rows)
}

// cutText is the beginning of what a sandbox wrote, on one line.
func cutText(text string) string {
	if len(text) <= maxStatusShown {
		return vpath.Escape(text)
	}
	return vpath.Escape(strings.ToValidUTF8(text[:maxStatusShown], "")) + "…"
}

func newBoardPost(e *env) *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:   "post NAME TEXT",
		Short: "Post a message for a running sandbox",
		Long: `Post a message on the board of a sandbox that runs. The text has 4 KiB at most; - reads
it from standard input. The message says that the user of the sandbox posted it. A
message in the topic status says what the sandbox works on.`,
		Example: `  agentfense board post fix "the parser is done"
  agentfense board post fix --topic status "changes the parser"`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: e.completeNames,
	}
	cmd.Flags().StringVar(&topic, "topic", board.DefaultTopic, "topic of the message")
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d := board.Draft{By: board.ByUser, Topic: topic, Text: args[1]}
		if d.Text == "-" {
			text, err := io.ReadAll(io.LimitReader(e.stdin, board.MaxText+1))
			if err != nil {
				return errdefs.New(errdefs.Invalid, "standard input: %w", err)
			}
			d.Text = strings.TrimSuffix(string(text), "\n")
		}
		if err := d.Check(); err != nil {
			return usageError{err}
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			_, err := b.PostMessage(ctx, args[0], d)
			return err
		})
	}
	return cmd
}

type boardReadOptions struct {
	Topic        string
	After        uint64
	Follow, JSON bool
}

func newBoardRead(e *env) *cobra.Command {
	var o boardReadOptions
	cmd := &cobra.Command{
		Use:   "read [NAME]",
		Short: "Read the messages of a source",
		Long: `Print the messages of a source, the oldest first: number, time, sandbox, sender, topic
and text. The source is that of the sandbox NAME, or the current directory. With --follow, go on
with new ones until interrupted; --json then prints one object a line.

A board keeps about the last 1000 messages, and none for longer than 7 days.`,
		Example: `  agentfense board read fix
  agentfense board read --topic status --follow`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	f := cmd.Flags()
	f.StringVar(&o.Topic, "topic", "", "only messages of this topic")
	f.Uint64Var(&o.After, "after", 0, "only messages after the one with this number")
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on with new messages until interrupted")
	jsonFlag(cmd, &o.JSON)
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		cmd.SetContext(ctx)
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			name, err := e.boardOf(args)
			if err != nil {
				return err
			}
			if err := e.readBoard(ctx, b, name, o); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	return cmd
}

// boardWait is how long one look for new messages waits.
const boardWait = 30 * time.Second

// readBoard prints what there is, with Follow until ctx ends.
func (e *env) readBoard(ctx context.Context, b backend.Backend, name string, o boardReadOptions) error {
	q, all := board.Query{After: o.After, Topic: o.Topic}, []board.Message{}
	wait := time.Duration(0)
	for {
		p, err := b.Messages(ctx, name, ".", q, wait)
		if err != nil {
			return err
		}
		if p.Lost > 0 && q.After > 0 {
			e.say("%s behind number %d are no longer kept", plural(int(p.Lost), "message"), q.After)
		}
		more := len(p.Messages) == board.MaxPage
		q.After = p.Next
		switch {
		case o.JSON && !o.Follow:
			all = append(all, p.Messages...)
		default:
			err = e.printMessages(p.Messages, o.JSON)
		}
		if err != nil {
			return err
		}
		switch {
		case o.Follow && !more:
			wait = boardWait
		case !more && o.JSON:
			return e.printJSON(struct {
				SchemaVersion int             `json:"schema_version"`
				Messages      []board.Message `json:"messages"`
				Next          uint64          `json:"next"`
			}{schemaVersion, all, q.After})
		case !more:
			return nil
		}
	}
}

// printMessages prints a line for each message. What a sandbox wrote is escaped.
func (e *env) printMessages(list []board.Message, asJSON bool) error {
	var err error
	for _, m := range list {
		if asJSON {
			text, failed := json.Marshal(m)
			err = errors.Join(err, failed)
			_, failed = fmt.Fprintf(e.stdout, "%s\n", vpath.EscapeJSON(text))
			err = errors.Join(err, failed)
			continue
		}
		_, failed := fmt.Fprintf(e.stdout, "%d %s %s (%s) %s: %s\n", m.Seq, present.LocalTime(m.Time), vpath.Escape(m.Sandbox), vpath.Escape(string(m.By)), vpath.Escape(m.Topic), vpath.Escape(m.Text))
		err = errors.Join(err, failed)
	}
	return err
}

package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

type historyOutput struct {
	Transactions []transaction `json:"transactions" jsonschema:"the latest first"`
}

type transaction struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind" jsonschema:"apply, keep, undo or redo"`
	Of       string    `json:"of,omitempty" jsonschema:"the transaction that this one reverses"`
	Reversed bool      `json:"reversed" jsonschema:"a later transaction has reversed it"`
	Time     time.Time `json:"time"`
	Mount    string    `json:"mount,omitempty" jsonschema:"the mount whose directory was changed; none: the project"`
	Paths    int       `json:"paths" jsonschema:"number of changed paths"`
	Branch   string    `json:"branch,omitempty" jsonschema:"the branch of the project's repository that was moved: the user applied commits to it"`
}

// maxTransactions bounds the answer of history.
const maxTransactions = 100

// transactions returns what was applied of this sandbox, the oldest first. A removed sandbox may
// have had its name.
func (s *service) transactions(ctx context.Context) ([]history.Entry, error) {
	sb, err := s.sb.open(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.o.Backend.History(ctx, sb.Ref(), "")
	return slices.DeleteFunc(list, func(e history.Entry) bool {
		return e.Sandbox != sb.Record.ID || e.State != history.Committed
	}), err
}

// history is the tool history.
func (s *service) history(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, historyOutput, error) {
	out := historyOutput{Transactions: []transaction{}}
	list, err := s.transactions(ctx)
	if err != nil {
		return nil, out, err
	}
	for _, e := range slices.Backward(list) {
		if len(out.Transactions) == maxTransactions {
			break
		}
		branch := ""
		if e.Branch != nil {
			branch = vpath.Escape(e.Branch.Name())
		}
		out.Transactions = append(out.Transactions, transaction{e.ID, string(e.Kind), e.Of, e.ReversedBy != "", e.Time, e.Mount, e.Count, branch})
	}
	return nil, out, nil
}

// requestUndo is the tool request_undo. It changes nothing: as with request_apply, the user runs
// the command.
func (s *service) requestUndo(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	list, err := s.transactions(ctx)
	if err != nil {
		return nil, nil, err
	}
	last, err := undo.Select(list, false)
	if errdefs.Is(err, errdefs.NotFound) {
		return textResult("nothing was applied: there is nothing to undo"), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	plan, err := s.o.Backend.Undo(ctx, backend.UndoOptions{ID: last.ID, DryRun: true})
	if err != nil {
		return nil, nil, err
	}
	text := fmt.Sprintf("Paths that the last apply changed: %d. Nothing is undone yet. Tell the user to look at it with\n"+
		"  agentfense undo %[2]s --dry-run\nand to take it back with\n  agentfense undo %[2]s", len(plan.Paths), last.ID)
	if n := plan.Conflicts(); n > 0 {
		text += fmt.Sprintf("\nIt is refused as long as %d of the paths are as they are: they have changed since.", n)
	}
	if s.o.CommandNote != "" {
		text += "\n" + s.o.CommandNote
	}
	return textResult(text), nil, nil
}

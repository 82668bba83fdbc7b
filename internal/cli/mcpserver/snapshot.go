package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// maxSnapshots is how many snapshots a sandbox may have before a model can take no more. The rest
// of the places is for the user.
const maxSnapshots = snapshot.MaxAsked / 2

type snapshotInput struct {
	Label string `json:"label,omitempty" jsonschema:"a name for the snapshot: letters, digits, dots, underscores and dashes"`
}

// snapshot is the tool of that name.
func (s *service) snapshot(ctx context.Context, _ *mcp.CallToolRequest, in snapshotInput) (*mcp.CallToolResult, any, error) {
	if in.Label != "" {
		if err := snapshot.CheckLabel(in.Label); err != nil {
			return nil, nil, err
		}
	}
	sb, err := s.sb.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	t, err := s.o.Backend.SnapshotTree(ctx, sb.Ref())
	if err != nil {
		return nil, nil, err
	}
	asked := 0
	for _, n := range t.Nodes {
		if n.Reason == "" {
			asked++
		}
	}
	if asked >= maxSnapshots {
		return nil, nil, errdefs.New(errdefs.Exhausted, "snapshot: the sandbox has %d snapshots: ask the user to remove some with agentfense snapshot rm %s SNAPSHOT", asked, sb.Record.Name)
	}
	made, err := s.o.Backend.TakeSnapshot(ctx, sb.Ref(), in.Label, nil)
	if err != nil {
		return nil, nil, err
	}
	return textResult("taken: " + made.Ref()), nil, nil
}

// snapshots is the tool of that name. It does not tell before which commands of the user snapshots
// were taken.
func (s *service) snapshots(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	sb, err := s.sb.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	t, err := s.o.Backend.SnapshotTree(ctx, sb.Ref())
	if err != nil {
		return nil, nil, err
	}
	if len(t.Nodes) == 0 {
		return textResult("there are no snapshots"), nil, nil
	}
	var list strings.Builder
	for _, n := range t.Nodes {
		fmt.Fprintf(&list, "%s%s %s", strings.Repeat("  ", n.Depth), n.Ref(), n.CreatedAt.Format(time.RFC3339))
		if n.Label != "" {
			list.WriteString(" " + n.Label)
		}
		if n.Reason != "" {
			list.WriteString(" (" + string(n.Reason) + ")")
		}
		if n.Number == t.Present {
			list.WriteString(": the present state is made of it")
		}
		list.WriteString("\n")
	}
	return textResult(list.String()), nil, nil
}

type restoreInput struct {
	Snapshot string `json:"snapshot" jsonschema:"name or label of the snapshot"`
}

// restore is the tool of that name. It waits for no command: the model could not stop one that it
// waits for.
func (s *service) restore(ctx context.Context, _ *mcp.CallToolRequest, in restoreInput) (*mcp.CallToolResult, any, error) {
	if in.Snapshot == "" {
		return nil, nil, errdefs.New(errdefs.Invalid, "snapshot: it is empty")
	}
	for taken := range maxCommands {
		select {
		case s.commands <- struct{}{}:
			defer func() { <-s.commands }()
		default:
			return nil, nil, errdefs.New(errdefs.Precondition, "restore: %d commands run: wait for their end, or cancel them", maxCommands-taken)
		}
	}
	r, err := s.sb.restore(ctx, in.Snapshot)
	if err != nil {
		return nil, nil, err
	}
	text := "the sandbox is as in " + r.To.Ref()
	if r.Kept.Number != 0 {
		text += "; what was there is " + r.Kept.Ref()
	}
	return textResult(text), nil, nil
}

// How long a restore waits for the end of a sandbox that we have left.
const (
	endPatience = 10 * time.Second
	endPause    = 20 * time.Millisecond
)

// restore leaves the sandbox, which ends it unless others use it, and brings it back to a snapshot.
// The next call enters it again.
func (s *sandbox) restore(ctx context.Context, ref string) (snapshot.Restored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, err := s.openLocked(ctx)
	if err != nil {
		return snapshot.Restored{}, err
	}
	// Looked up before anything is ended.
	t, err := s.o.Backend.SnapshotTree(ctx, sb.Ref())
	if err != nil {
		return snapshot.Restored{}, err
	}
	if _, err := listOf(&t).Find(sb.Record.Name, ref); err != nil {
		return snapshot.Restored{}, err
	}
	if s.live != nil {
		s.left()
		err := s.live.Leave()
		s.live = nil
		if err != nil {
			return snapshot.Restored{}, err
		}
	}
	for deadline := time.Now().Add(endPatience); ; {
		r, err := s.o.Backend.Restore(ctx, sb.Ref(), ref, false, nil)
		isRunning := errdefs.Is(err, errdefs.Precondition) // it may be ending
		if !isRunning || time.Now().After(deadline) || ctx.Err() != nil {
			return r, err
		}
		time.Sleep(endPause)
	}
}

func listOf(t *snapshot.Tree) *snapshot.List {
	l := &snapshot.List{}
	for _, n := range t.Nodes {
		l.Snapshots = append(l.Snapshots, n.Snapshot)
	}
	return l
}

// patchSince shows how a snapshot and a later one, or for "" the present state, differ, as far as a
// command inside could read it.
func (s *service) patchSince(ctx context.Context, sb backend.Sandbox, from, to string, paths []vpath.Path) (string, error) {
	isShown, done, err := s.shown(ctx, sb)
	if err != nil {
		return "", err
	}
	defer done()
	later := sb.Ref()
	if to != "" {
		later += "@" + to
		isShown = ofSnapshot(isShown)
	}
	compare := func(paths []vpath.Path) (*backend.Compared, error) {
		return s.o.Backend.Compare(ctx, sb.Ref()+"@"+from, later, "", paths, nil)
	}
	r, err := compare(paths)
	if err != nil {
		return "", err
	}
	found := sortOut(r.Review, isShown)
	if found.left > 0 || len(found.shown) == 0 {
		if err := r.Close(); err != nil || len(found.shown) == 0 {
			return found.note(), err
		}
		if r, err = compare(found.shown); err != nil {
			return "", err
		}
	}
	text, err := s.print(r.Review, found.note(), isShown)
	if closing := r.Close(); err == nil {
		err = closing
	}
	return text, err
}

// ofSnapshot narrows what isShown says to what holds if the later state is not the present one: the
// names that a file has now are not those that it had.
func ofSnapshot(isShown func(*review.FileDiff) shownAs) func(*review.FileDiff) shownAs {
	return func(f *review.FileDiff) shownAs {
		as := isShown(f)
		if as == asContent && f.LeftOut == "" && !f.New.HasOneName() {
			return asName
		}
		return as
	}
}

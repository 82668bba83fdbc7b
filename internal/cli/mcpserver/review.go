package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
)

type diffInput struct {
	Paths []string `json:"paths,omitempty" jsonschema:"only what changed at and below these paths"`
	From  string   `json:"from,omitempty" jsonschema:"only what changed since this snapshot, by its name or label"`
	To    string   `json:"to,omitempty" jsonschema:"with from: up to this snapshot; without it up to now"`
}

// diff is the tool of that name. That a model has seen the changes does not count as a review, so
// nothing is noted as shown.
func (s *service) diff(ctx context.Context, _ *mcp.CallToolRequest, in diffInput) (*mcp.CallToolResult, any, error) {
	paths, err := s.paths(in.Paths)
	if err == nil && in.To != "" && in.From == "" {
		err = errdefs.New(errdefs.Invalid, "to: needs from, the snapshot to compare with")
	}
	if err != nil {
		return nil, nil, err
	}
	sb, err := s.sb.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.reviewing.Lock()
	defer s.reviewing.Unlock()
	text := ""
	if in.From == "" {
		text, err = s.patch(ctx, sb, paths)
	} else {
		text, err = s.patchSince(ctx, sb, in.From, in.To, paths)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case text == "":
		return textResult("nothing is changed"), nil, nil
	}
	return textResult(text), nil, nil
}

func (s *service) paths(texts []string) ([]vpath.Path, error) {
	var paths []vpath.Path
	for _, text := range texts {
		p, err := s.path(text)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// patch shows the changes at and below the paths, as far as a command inside could read them. A
// path that was changed and hidden later is left out.
func (s *service) patch(ctx context.Context, sb backend.Sandbox, paths []vpath.Path) (string, error) {
	isShown, done, err := s.shown(ctx, sb)
	if err != nil {
		return "", err
	}
	defer done()
	c, err := s.o.Backend.Changes(ctx, sb.Ref(), "", nil)
	if err != nil {
		return "", err
	}
	all, err := c.Review(ctx, paths, backend.Names)
	if err != nil {
		return "", err
	}
	found := sortOut(all.Review, isShown)
	if err := all.Close(); err != nil || len(found.shown) == 0 {
		return found.note(), err
	}
	visible := found.shown
	if found.left == 0 {
		visible = paths
	}
	r, err := c.Review(ctx, visible, backend.Counts)
	if err != nil {
		return "", err
	}
	defer r.Close()
	return s.print(r.Review, found.note(), isShown)
}

// shownAs is what may be shown of a change.
type shownAs int

const (
	asHidden  shownAs = iota
	asName            // its content is that of another name, too, which may be hidden
	asContent         // all of it
)

// sorted are the paths of changes by what may be shown of them.
type sorted struct {
	shown, names []vpath.Path
	left         int // how many are not in shown
}

func sortOut(r *review.Review, isShown func(*review.FileDiff) shownAs) (s sorted) {
	for _, f := range r.Files() {
		switch isShown(&f) {
		case asContent:
			s.shown = append(s.shown, f.Path)
			continue
		case asName:
			s.names = append(s.names, f.Path)
		}
		s.left++
	}
	return s
}

// maxNoted bounds how many paths a note names.
const maxNoted = 20

// note names the changes of which only the name is shown.
func (s *sorted) note() string {
	var text strings.Builder
	for _, p := range s.names[:min(len(s.names), maxNoted)] {
		fmt.Fprintf(&text, "# %s: changed; not compared, because it is or was a file with several names\n", present.Written(p))
	}
	if more := len(s.names) - maxNoted; more > 0 {
		fmt.Fprintf(&text, "# and %d more such files\n", more)
	}
	return text.String()
}

// print returns a review as a patch behind the note, cut where it is too long. Errors: Denied if it
// would show a change that may not be shown.
func (s *service) print(r *review.Review, note string, isShown func(*review.FileDiff) shownAs) (string, error) {
	for _, f := range r.Files() {
		if isShown(&f) != asContent {
			return "", errdefs.New(errdefs.Denied, "diff: it would show paths that the policy hides; name the paths to compare")
		}
	}
	out := limited{room: s.o.MaxOutputBytes}
	err := present.Patch(&out, r, present.PatchOptions{})
	isCut := errors.Is(err, errFull)
	if err != nil && !isCut {
		return "", err
	}
	text := note + strings.ToValidUTF8(out.String(), "\ufffd")
	if isCut {
		text += "\n[… the rest of the diff is left out: name fewer paths …]\n"
	}
	return text, nil
}

// shown returns what tells how a change may be shown to a command inside. Call done after.
func (s *service) shown(ctx context.Context, sb backend.Sandbox) (isShown func(*review.FileDiff) shownAs, done func(), err error) {
	p, err := s.policy(ctx, sb)
	if err != nil {
		return nil, nil, err
	}
	v, err := s.o.Backend.View(ctx, sb.Ref(), "", nil)
	if err != nil {
		return nil, nil, err
	}
	names := seen{ctx: ctx, view: v, dirs: map[vpath.Path]map[vpath.Path]bool{}}
	return func(f *review.FileDiff) shownAs {
		d := p.Decide(f.Path)
		switch {
		case f.Own && f.LeftOut != "": // its line has no content
			return asContent
		case f.Own && !names.lists(f.Path.Dir()), !f.Own && !d.ShowsContent():
			return asHidden
		case f.Old.HasOneName() && (f.New.HasOneName() || names.canRead(f.Path)):
			return asContent
		}
		return asName
	}, v.Close, nil
}

// seen is what the view shows, by directory.
type seen struct {
	ctx  context.Context
	view backend.View
	dirs map[vpath.Path]map[vpath.Path]bool
}

// canRead reports whether a command could read the file at p. What cannot be listed it could not.
func (s *seen) canRead(p vpath.Path) bool { return s.entries(p.Dir())[p] }

// lists reports whether a command could list the directory.
func (s *seen) lists(dir vpath.Path) bool { return s.entries(dir) != nil }

// entries tells of each entry of a directory whether it can be read; nil if the directory cannot be
// listed.
func (s *seen) entries(dir vpath.Path) map[vpath.Path]bool {
	readable, has := s.dirs[dir]
	if has {
		return readable
	}
	if list, err := s.view.List(s.ctx, dir); err == nil {
		readable = map[vpath.Path]bool{}
		for _, e := range list {
			readable[e.Path] = e.Permission >= policy.Read
		}
	}
	s.dirs[dir] = readable
	return readable
}

func (s *service) policy(ctx context.Context, sb backend.Sandbox) (*policy.Policy, error) {
	now, err := s.o.Backend.Policy(ctx, sb.Ref())
	if err != nil {
		return nil, err
	}
	return policy.Compile(now.Record.Rules, policy.Options{Reserved: now.Reserved})
}

// limited keeps the beginning of what is written.
type limited struct {
	bytes.Buffer
	room int64
}

// Write keeps what there is room for.
func (l *limited) Write(data []byte) (int, error) {
	if int64(len(data)) > l.room {
		l.Buffer.Write(data[:l.room])
		l.room = 0
		return 0, errFull
	}
	l.room -= int64(len(data))
	return l.Buffer.Write(data)
}

type explainInput struct {
	Paths []string `json:"paths" jsonschema:"paths, relative to the project directory"`
}

type explainOutput struct {
	Paths []explanation `json:"paths"`
}

type explanation struct {
	Path       string `json:"path"`
	Permission string `json:"permission"`
	Reason     string `json:"reason,omitempty"`
	HowToAsk   string `json:"how_to_ask,omitempty"`
}

// maxExplained bounds the paths of one call.
const maxExplained = 100

// explain is the tool of that name. It depends on the policy alone, and not on what exists. Of a
// hidden path no rule is named: its pattern could name other hidden ones.
func (s *service) explain(ctx context.Context, _ *mcp.CallToolRequest, in explainInput) (*mcp.CallToolResult, explainOutput, error) {
	out := explainOutput{Paths: []explanation{}}
	paths, err := s.paths(in.Paths)
	if err == nil && len(paths) > maxExplained {
		err = errdefs.New(errdefs.Invalid, "paths: %d; at most %d in one call", len(paths), maxExplained)
	}
	if err != nil {
		return nil, out, err
	}
	sb, err := s.sb.open(ctx)
	if err != nil {
		return nil, out, err
	}
	p, err := s.policy(ctx, sb)
	if err != nil {
		return nil, out, err
	}
	for _, path := range paths {
		d := p.Decide(path)
		e := explanation{Path: present.Written(path), Permission: d.ForDir().String()}
		switch {
		case d.Permission == policy.None && d.Traversable:
			e.Reason = "a directory here lists only what is visible below it"
		case d.Permission == policy.None:
			e.Reason = "hidden: what the user has here does not exist in the sandbox"
		default:
			e.Reason = d.Reason
		}
		isFixed := path.IsRoot() || path == policy.ProjectFile || !d.Transform.IsZero()
		if (d.Permission == policy.View || d.Permission == policy.Read) && !isFixed {
			e.HowToAsk = fmt.Sprintf("if the task needs more, call ask, or ask the user to run: agentfense policy grant %s %s %s", sb.Record.Name, policy.QuoteForShell(path.Rel()), d.Permission+1)
		}
		out.Paths = append(out.Paths, e)
	}
	return nil, out, nil
}

type requestInput struct {
	Message string `json:"message,omitempty" jsonschema:"what the changes do, in a sentence"`
}

// maxMessage bounds the message of a request.
const maxMessage = 1000

// requestApply is the tool request_apply. It asks by a channel that the model cannot answer on:
// the command line of the user. What a client of the protocol asks the user for could be answered
// by the client.
func (s *service) requestApply(ctx context.Context, _ *mcp.CallToolRequest, in requestInput) (*mcp.CallToolResult, any, error) {
	if len(in.Message) > maxMessage {
		return nil, nil, errdefs.New(errdefs.Invalid, "message: %d bytes; at most %d", len(in.Message), maxMessage)
	}
	sb, err := s.sb.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.reviewing.Lock()
	defer s.reviewing.Unlock()
	name := sb.Record.Name
	digest, changes, err := s.o.RequestApply(ctx, sb.Ref(), in.Message)
	if err != nil {
		return nil, nil, err
	}
	commits, err := s.commitsText(ctx, sb)
	if err != nil {
		return nil, nil, err
	}
	if changes == 0 {
		return textResult(strings.TrimPrefix(cmp.Or(commits, "nothing is changed: there is nothing to apply"), "\n")), nil, nil
	}
	text := fmt.Sprintf("Changed files that wait for the user: %d. Nothing is applied yet. Tell the user to review them with\n"+
		"  agentfense review %[2]s\nor look at them with\n  agentfense diff %[2]s\nand to apply what was reviewed with\n  agentfense apply %[2]s\nThe state of now, whatever is changed later:\n  agentfense apply %[2]s --reviewed %[3]s", changes, name, digest)
	text += commits
	if s.o.CommandNote != "" {
		text += "\n" + s.o.CommandNote
	}
	return textResult(text), nil, nil
}

// commitsText says how the user brings the commits of a clean repository out, "" if there are none.
func (s *service) commitsText(ctx context.Context, sb backend.Sandbox) (string, error) {
	if !sb.Record.Git.IsClean() {
		return "", nil
	}
	n, err := s.o.Backend.UnsavedBranches(ctx, sb.Ref())
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("\nBranches with commits that wait for the user: %d. The user looks at them with\n  agentfense commits %[2]s\n"+
		"and brings them into the repository with\n  agentfense apply %[2]s --commits [--to-branch BRANCH]", n, sb.Record.Name), nil
}

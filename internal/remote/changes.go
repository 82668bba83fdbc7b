package remote

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/carry"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/textdiff"
	"github.com/agentfense/agentfense/internal/vpath"
)

var (
	changeOf = map[sandboxv1.ChangeStatus]sandbox.Status{
		sandboxv1.ChangeStatus_CHANGE_STATUS_ADDED:    sandbox.Added,
		sandboxv1.ChangeStatus_CHANGE_STATUS_MODIFIED: sandbox.Modified,
		sandboxv1.ChangeStatus_CHANGE_STATUS_DELETED:  sandbox.Deleted,
		sandboxv1.ChangeStatus_CHANGE_STATUS_RETYPED:  sandbox.Retyped,
	}
	riskOf = map[sandboxv1.Risk]sandbox.Risk{
		sandboxv1.Risk_RISK_TRUSTED_LATER: sandbox.TrustedLater,
		sandboxv1.Risk_RISK_RUNS_ON_HOST:  sandbox.RunsOnHost,
	}
	outcomeOf = map[sandboxv1.Outcome]sandbox.Outcome{
		sandboxv1.Outcome_OUTCOME_APPLIED:  sandbox.Applied,
		sandboxv1.Outcome_OUTCOME_PRESENT:  sandbox.Present,
		sandboxv1.Outcome_OUTCOME_KEPT:     sandbox.Kept,
		sandboxv1.Outcome_OUTCOME_CONFLICT: sandbox.Conflict,
		sandboxv1.Outcome_OUTCOME_REFUSED:  sandbox.Refused,
		sandboxv1.Outcome_OUTCOME_FAILED:   sandbox.Failed,
		sandboxv1.Outcome_OUTCOME_SKIPPED:  sandbox.Skipped,

		sandboxv1.Outcome_OUTCOME_LEFT_OUT:             sandbox.LeftOut,
		sandboxv1.Outcome_OUTCOME_CHANGED_SINCE_REVIEW: sandbox.ChangedSinceReview,
	}
)

// selection is which changes are meant. The root is "/", as an empty path is
// refused.
func selection(paths []vpath.Path) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = cmp.Or(p.Text(), string(vpath.Root))
	}
	return out
}

func pathsOf(texts []string) ([]vpath.Path, error) {
	var out []vpath.Path
	for _, text := range texts {
		p, err := parsePath(text)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// parsePath reads a path that the server sent. Errors: Internal for one that is
// none: nothing of what the server says is trusted with a file of ours.
func parsePath(text string) (vpath.Path, error) {
	p, err := vpath.ParseText(text)
	if err != nil {
		return "", fault.New(fault.Internal, "the server names a path that is none: %w", err)
	}
	return p, nil
}

// Review shows what a sandbox changed at and below the paths; without paths,
// all. With namesOnly it has no contents. Its digest covers also what the digest
// shown does, but for what lies at and below the paths.
func (c *Client) Review(ctx context.Context, s control.Sandbox, paths []vpath.Path, namesOnly bool, shown string) (*sandbox.Review, error) {
	r := &sandboxv1.DiffRequest{SandboxId: string(s.Record.ID), Paths: selection(paths), NamesOnly: namesOnly, ShownDigest: shown}
	digest := ""
	var files []sandbox.FileDiff
	var groups []*sandboxv1.ChangeGroup
	type key struct { // an own entry may be beside a change of what it takes the place of
		path vpath.Path
		own  bool
	}
	contents := map[key]*sandboxv1.FileDiff{}
	for {
		page, err := c.sandboxes.Diff(ctx, r)
		if err != nil {
			return nil, c.failed(err)
		}
		digest = page.Digest
		groups = append(groups, page.Groups...)
		for _, d := range page.Files {
			f, err := fileDiffOf(d)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
			contents[key{f.Path, f.Own}] = d
		}
		if r.PageToken, err = carry.NextPage(r.PageToken, page.NextPageToken); err != nil {
			return nil, err
		}
		if r.PageToken == "" {
			break
		}
	}
	if digest != "" && !sandbox.IsDigest(digest) {
		return nil, fault.New(fault.Internal, "the server sent an invalid digest")
	}
	return sandbox.ReviewOf(s.Record.Name, s.Record.ID, digest, files, groupsOf(files, groups), func(f *sandbox.FileDiff) (sandbox.Content, error) {
		return contentOf(contents[key{f.Path, f.Own}], f)
	}), nil
}

func fileDiffOf(d *sandboxv1.FileDiff) (sandbox.FileDiff, error) {
	path, err := parsePath(d.Path)
	if err != nil {
		return sandbox.FileDiff{}, err
	}
	f := sandbox.FileDiff{
		Path: path, Status: changeOf[d.Status], Old: sideOf(d.Old), New: sideOf(d.New), Stale: d.SourceChanged,
		Own: d.Own, LeftOut: vpath.Escape(d.LeftOut),
	}
	if d.Risk != sandboxv1.Risk_RISK_UNSPECIFIED {
		f.Mark = &sandbox.Mark{Risk: riskOf[d.Risk], Reason: vpath.Escape(d.RiskReason)}
	}
	f.Group = escapedOnce(d.Group)
	if d.RenamedFrom != "" {
		f.RenamedFrom, err = parsePath(d.RenamedFrom)
	}
	if d.RenamedTo != "" && err == nil {
		f.RenamedTo, err = parsePath(d.RenamedTo)
	}
	return f, err
}

// escapedOnce escapes what the server should have escaped, and leaves alone what it
// has.
func escapedOnce(text string) string {
	return strings.ReplaceAll(vpath.Escape(text), `\\`, `\`)
}

// groupsOf are the groups of files; the server says what they hold.
func groupsOf(files []sandbox.FileDiff, said []*sandboxv1.ChangeGroup) []sandbox.Group {
	lines := map[string][]string{}
	for _, g := range said {
		name := escapedOnce(g.Name)
		for _, line := range g.Lines {
			lines[name] = append(lines[name], escapedOnce(line))
		}
	}
	return sandbox.GroupsOf(files, func(name string) []string { return lines[name] })
}

func sideOf(s *sandboxv1.FileState) *sandbox.Side {
	if s == nil {
		return nil
	}
	return &sandbox.Side{Mode: s.Mode, SizeBytes: s.Size, Target: vpath.DecodeText(s.SymlinkTarget)}
}

// contentOf reads the content of f, or of the part of it that is a deletion or
// an addition, from the server's patch.
func contentOf(d *sandboxv1.FileDiff, f *sandbox.FileDiff) (sandbox.Content, error) {
	if link := onlyLink(f); link != nil { // its target is its content, and always there
		return contentOfLink(f, link.Target), nil
	}
	c := sandbox.Content{Binary: d.Binary, TooLarge: d.TooLarge || d.PatchOmitted, Unknown: d.OldContentUnknown}
	if f.New != nil {
		c.SHA256 = vpath.Escape(d.New.GetSha256())
	}
	text := d.Patch
	if len(d.PatchBytes) > 0 {
		text = string(d.PatchBytes)
	}
	patches, err := textdiff.ParsePatch(text)
	if err != nil {
		return c, fault.New(fault.Internal, "diff %s: the server's patch: %w", f.Path, err)
	}
	for _, p := range patches {
		otherPart := f.Old == nil && p.Deleted || f.New == nil && p.Added
		if !otherPart {
			c.Hunks = append(c.Hunks, p.Hunks...)
		}
	}
	if len(patches) > 1 && f.Old != nil && f.New != nil { // it became something else
		c.Hunks = textdiff.Hunks(sideText(c.Hunks, textdiff.Insert), sideText(c.Hunks, textdiff.Delete))
	}
	c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
	return c, nil
}

// sideText is what hunks that are whole files hold, without the lines of one
// kind.
func sideText(hunks []textdiff.Hunk, without textdiff.Op) []byte {
	var text []byte
	for _, h := range hunks {
		for _, l := range h.Lines {
			if l.Op != without {
				text = append(text, l.Text...)
			}
		}
	}
	return text
}

// onlyLink returns the one side of f if that is a symbolic link.
func onlyLink(f *sandbox.FileDiff) *sandbox.Side {
	side := f.New
	if side == nil {
		side = f.Old
	}
	if side == nil || f.Old != nil && f.New != nil || side.Mode&unix.S_IFMT != unix.S_IFLNK {
		return nil
	}
	return side
}

func contentOfLink(f *sandbox.FileDiff, target string) sandbox.Content {
	var before, after []byte
	if f.Old != nil {
		before = []byte(target)
	} else {
		after = []byte(target)
	}
	c := sandbox.Content{Hunks: textdiff.Hunks(before, after)}
	c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
	return c
}

// Apply brings changes into the codebase, those that the digest reviewed names or
// all there are. If something stands in the way, the
// result tells what, beside the error.
func (c *Client) Apply(ctx context.Context, s control.Sandbox, paths []vpath.Path, dryRun bool, reviewed string) (sandbox.ApplyResult, error) {
	r := &sandboxv1.ApplyRequest{SandboxId: string(s.Record.ID), Paths: selection(paths), DryRun: dryRun, ReviewedDigest: reviewed}
	answer, err := c.sandboxes.Apply(ctx, r)
	if err = c.failed(err); !dryRun && fault.Is(err, fault.Precondition) {
		if result, dryErr := c.Apply(ctx, s, paths, true, reviewed); fault.Is(dryErr, fault.Precondition) {
			result.Skip()
			return result, err
		}
	}
	if err != nil {
		return sandbox.ApplyResult{}, err
	}
	result, err := applyResultOf(answer)
	if err == nil && dryRun {
		err = sandbox.Refusal(s.Record.Name, result.Paths)
	}
	return result, err
}

func applyResultOf(answer *sandboxv1.ApplyResponse) (sandbox.ApplyResult, error) {
	var result sandbox.ApplyResult
	for _, p := range answer.Results {
		path, err := parsePath(p.Path)
		if err != nil {
			return result, err
		}
		result.Paths = append(result.Paths, sandbox.PathResult{
			Path: path, Status: changeOf[p.Status], Outcome: outcomeOf[p.Outcome], Reason: p.Reason,
		})
	}
	slices.SortFunc(result.Paths, func(a, b sandbox.PathResult) int { return cmp.Compare(a.Path, b.Path) })
	var err error
	result.Changed, err = pathsOf(answer.WrittenAgain)
	return result, err
}

// Discard forgets changes. It returns which, and which paths were written again
// meanwhile.
func (c *Client) Discard(ctx context.Context, id string, paths []vpath.Path, dryRun bool) (sandbox.DiscardResult, error) {
	answer, err := c.sandboxes.Discard(ctx, &sandboxv1.DiscardRequest{SandboxId: id, Paths: selection(paths), DryRun: dryRun})
	if err != nil {
		return sandbox.DiscardResult{}, c.failed(err)
	}
	var result sandbox.DiscardResult
	if result.Paths, err = pathsOf(answer.Paths); err != nil {
		return result, err
	}
	result.Changed, err = pathsOf(answer.WrittenAgain)
	return result, err
}

//go:build linux

package client

import (
	"context"
	"io/fs"
	"log/slog"
	"os"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/remote"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/transfer/scan"
)

// noted records a directory as it was uploaded.
type noted struct {
	home   *record.Home
	source record.Source
	files  uploaded.Files
}

// noteUpload begins the record of a directory. Errors: those of the state directory.
func noteUpload(dir string) (*noted, error) {
	home, err := record.OpenHome(os.Getenv)
	if err != nil {
		return nil, err
	}
	source, err := home.ResolveSource(dir)
	if err != nil {
		return nil, err
	}
	return &noted{home: home, source: source}, nil
}

// add records an uploaded entry.
func (n *noted) add(f scan.File, info fs.FileInfo, content *os.File) error {
	return n.files.Add(f.Path, info, f.Target, content)
}

// remember stores the record where the command line also stores its records.
func (n *noted) remember(id, codebaseID string, given []PermissionRule) error {
	rules, err := policyRules("create sandbox", given)
	if err != nil {
		return err
	}
	return uploaded.Remember(n.home, record.ID(id), codebaseID, n.source, rules, nil, &n.files)
}

// uploadOf returns the record of the directory that was uploaded for the sandbox, nil without one.
func (s *Sandbox) uploadOf() (*uploaded.Directory, error) {
	u, err := uploaded.Find(os.Getenv, record.ID(s.ID))
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, nil
	}
	return u, err
}

// setUploadRules sets the rules of an apply to the uploaded directory.
func (s *Sandbox) setUploadRules(given []PermissionRule) error {
	const operation = "set policy"
	u, err := s.uploadOf()
	if err == nil && u != nil {
		rules, ruleErr := policyRules(operation, given)
		if ruleErr != nil {
			return ruleErr
		}
		err = u.SetRules(rules)
	}
	if err != nil {
		return local(operation, err)
	}
	return nil
}

// noteFork records for a fork what is recorded of the upload of s.
func (s *Sandbox) noteFork(fork string, given []PermissionRule) error {
	if s.unnoted != nil {
		return s.unnoted
	}
	u, err := s.uploadOf()
	if err != nil || u == nil {
		return err
	}
	rules, err := policyRules("fork", given)
	if err != nil {
		return err
	}
	return u.RememberFork(record.ID(fork), rules)
}

// forgetUpload removes the record of a removed sandbox.
func (s *Sandbox) forgetUpload(ctx context.Context) {
	u, err := s.uploadOf()
	if err == nil && u != nil {
		err = u.Forget()
	}
	if err != nil {
		slog.WarnContext(ctx, "agentfense: cannot remove the record of a removed sandbox's upload: "+err.Error(), "sandbox", s.ID)
	}
}

// shown is what a review showed, with the checksums of the contents.
type shown struct {
	digest string
	what   *apply.Shown
}

// noteShown records what a review shows, for an apply to the uploaded directory.
func (s *Sandbox) noteShown(digest string, files []*sandboxv1.FileDiff) error {
	u, err := s.uploadOf()
	if err != nil || u == nil {
		return nil // Apply reports the error
	}
	what, err := remote.ShownOf(files)
	if err != nil {
		return local("diff", err)
	}
	s.shown.Store(&shown{digest, what})
	return nil
}

// reviewed returns what an apply of a digest applies. If it is not the last review of this object,
// the server knows what it showed.
func (s *Sandbox) reviewed(digest string) backend.Reviewed {
	r := backend.Reviewed{Digest: digest}
	if last := s.shown.Load(); last != nil && last.digest == digest {
		r.Shown = last.what
	}
	return r
}

// bringBack applies changes to the uploaded directory; result is nil if there is none.
func (s *Sandbox) bringBack(ctx context.Context, r *sandboxv1.ApplyRequest) (result *ApplyResult, err error) {
	const operation = "apply"
	u, err := s.uploadOf()
	switch {
	case err != nil:
		return nil, local(operation, err)
	case u == nil:
		return nil, nil
	case len(r.Hunks) > 0:
		return nil, failure(operation, "hunks cannot be applied to a directory that was uploaded, which is recorded by file; apply whole files", ErrPrecondition)
	case r.OnConflict != 0:
		return nil, failure(operation, "texts of a directory that was uploaded are not merged; apply the other paths, and discard those in conflict", ErrPrecondition)
	}
	var paths []vpath.Path
	for _, text := range r.Paths {
		p, err := vpath.ParseSelected(text)
		if err != nil {
			return nil, invalid(operation, err)
		}
		paths = append(paths, p)
	}
	server := remote.Over(s.c.conn, s.c.at)
	sb, err := server.Sandbox(ctx, s.ID)
	if err != nil {
		return nil, s.broughtBack(ctx, apply.Result{}, err)
	}
	take := s.reviewed(r.ReviewedDigest)
	var statement []byte
	if r.Attest {
		take.Attest = func(text []byte) { statement = text }
	}
	got, err := remote.BringBack(ctx, server, u, sb, paths, r.DryRun, take, nil)
	toTell := r.DryRun && len(got.Paths) > 0 && errdefs.Is(err, errdefs.Precondition)
	if err != nil && !toTell {
		return nil, s.broughtBack(ctx, got, err)
	}
	result = applyResultFrom(got)
	result.Statement = statement
	return result, nil
}

// broughtBack converts the error of an apply to a directory of this host to an *Error.
func (s *Sandbox) broughtBack(ctx context.Context, got apply.Result, err error) error {
	if ctx.Err() != nil {
		return failure("apply", ctx.Err().Error(), ctx.Err())
	}
	e := failure("apply", err.Error(), ofKind[errdefs.KindOf(err)], err)
	if !errdefs.Is(err, errdefs.Precondition) || got.Count(apply.Applied) > 0 {
		return e
	}
	refused := false
	for _, p := range got.Paths {
		if p.Outcome == apply.Conflict {
			e.Conflicts = append(e.Conflicts, vpath.DecodeText(p.Path.Text()))
		}
		refused = refused || p.Outcome == apply.Refused
	}
	e.addApplyKind(refused)
	return e
}

var changeWords = map[changes.Status]ChangeStatus{
	changes.Added: ChangeAdded, changes.Modified: ChangeModified, changes.Deleted: ChangeDeleted, changes.Retyped: ChangeRetyped,
}

func applyResultFrom(got apply.Result) *ApplyResult {
	listed := got.AppliedLast()
	result := &ApplyResult{ResultCount: int64(len(listed)), AppliedCount: int64(got.Count(apply.Applied))}
	for _, p := range listed {
		result.Results = append(result.Results, PathOutcome{
			vpath.DecodeText(p.Path.Text()), changeWords[p.Status], Outcome(p.Outcome), p.Reason, 0, 0, false, 0, ConflictKind(p.Kind),
		})
	}
	for _, p := range got.Changed {
		result.WrittenAgain = append(result.WrittenAgain, vpath.DecodeText(p.Text()))
	}
	return result
}

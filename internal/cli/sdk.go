package cli

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// sdkVerb is the hidden verb of the Python package, for what it does not do itself: it
// remembers what was uploaded and brings changes back, by the code of the other verbs.
// Requests and answers are JSON, on standard input and output, of one version of the
// program and the package; docs/cli-abi.md does not promise them. Paths are written as
// in the API.
const sdkVerb = "__sdk"

func newSDK(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: sdkVerb, Hidden: true, Args: cobra.NoArgs}
	add := func(use string, do func(ctx context.Context, arg string) error) {
		sub := &cobra.Command{Use: use, Hidden: true, Args: cobra.ExactArgs(1)}
		marked(sub)
		sub.RunE = func(cmd *cobra.Command, args []string) error { return do(cmd.Context(), args[0]) }
		cmd.AddCommand(sub)
	}
	add("git-user DIR", func(_ context.Context, dir string) error {
		return json.NewEncoder(e.stdout).Encode(gitconfig.Of(e.getenv, dir))
	})
	add("remember ID", func(_ context.Context, id string) error { return e.sdkRemember(record.ID(id)) })
	add("rules ID", func(_ context.Context, id string) error { return e.sdkRules(record.ID(id)) })
	add("fork ID", func(_ context.Context, id string) error { return e.sdkFork(record.ID(id)) })
	add("forget ID", func(_ context.Context, id string) error {
		home, err := e.openHome()
		if err != nil {
			return err
		}
		return uploaded.Forget(home, record.ID(id))
	})
	add("apply ID", func(ctx context.Context, id string) error {
		if e.parts == nil { // standard input is for the program that has them
			return e.onServer(ctx, e.address(), nil)
		}
		return e.sdkApply(ctx, record.ID(id))
	})
	return cmd
}

// sdkRequest reads a request.
func (e *env) sdkRequest(to any) error {
	if err := json.NewDecoder(e.stdin).Decode(to); err != nil {
		return errdefs.New(errdefs.Invalid, "%s: standard input: %w", sdkVerb, err)
	}
	return nil
}

// sdkUpload is what was uploaded.
type sdkUpload struct {
	CodebaseID string        `json:"codebase_id"`
	Directory  string        `json:"directory"`
	Dev        uint64        `json:"dev"` // of the directory, before the upload
	Ino        uint64        `json:"ino"`
	Rules      []policy.Rule `json:"rules"`
	Files      []sdkFile     `json:"files"`
}

// sdkFile is an entry of an upload, as stat(2) has it.
type sdkFile struct {
	Path   string `json:"path"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Size   int64  `json:"size"`
	Mode   uint32 `json:"mode"`
	Nlink  uint32 `json:"nlink"`
	Mtime  int64  `json:"mtime"` // nanoseconds since 1970
	Ctime  int64  `json:"ctime"`
	SHA256 string `json:"sha256"` // in hex; "" for none
}

// sdkRemember remembers what was uploaded.
func (e *env) sdkRemember(id record.ID) error {
	var r sdkUpload
	if err := e.sdkRequest(&r); err != nil {
		return err
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	source, err := home.ResolveSource(vpath.DecodeText(r.Directory))
	if err != nil {
		return err
	}
	if source.Dev != r.Dev || source.Ino != r.Ino {
		return errdefs.New(errdefs.Precondition, "directory %s: not the directory that was uploaded", source.Path)
	}
	var files uploaded.Files
	for _, f := range r.Files {
		p, err := vpath.ParseText(f.Path)
		if err != nil {
			return err
		}
		sum, err := hex.DecodeString(f.SHA256)
		if err != nil {
			return errdefs.New(errdefs.Invalid, "sum of %s: %w", p, err)
		}
		files.AddEntry(p, uploaded.Entry{
			Dev: f.Dev, Ino: f.Ino, Size: f.Size, Mode: f.Mode, Nlink: f.Nlink,
			Mtime: unix.NsecToTimespec(f.Mtime), Ctime: unix.NsecToTimespec(f.Ctime), SHA256: sum,
		})
	}
	return uploaded.Remember(home, id, r.CodebaseID, source, r.Rules, nil, &files)
}

// sdkRules makes rules those of an apply.
func (e *env) sdkRules(id record.ID) error {
	var rules []policy.Rule
	if err := e.sdkRequest(&rules); err != nil {
		return err
	}
	u, err := uploaded.Find(e.getenv, id)
	if err != nil {
		return err
	}
	return u.SetRules(rules)
}

// sdkForked is a fork of a sandbox for which something was uploaded.
type sdkForked struct {
	Fork  record.ID     `json:"fork"`
	Rules []policy.Rule `json:"rules"`
}

// sdkFork remembers for a fork what was uploaded for its sandbox.
func (e *env) sdkFork(id record.ID) error {
	var r sdkForked
	if err := e.sdkRequest(&r); err != nil {
		return err
	}
	u, err := uploaded.Find(e.getenv, id)
	if err != nil {
		return err
	}
	return u.RememberFork(r.Fork, r.Rules)
}

// sdkApplied is the request of an apply.
type sdkApplied struct {
	Paths  []string   `json:"paths"` // none: everything
	DryRun bool       `json:"dry_run"`
	Digest string     `json:"digest"`
	Shown  []sdkShown `json:"shown"` // null where it is not known
}

// sdkShown is a change as diff showed it.
type sdkShown struct {
	Path   string `json:"path"`
	Status string `json:"status"` // as in sdkOutcome
	Mode   uint32 `json:"mode"`
	Target string `json:"target"`
	SHA256 string `json:"sha256"`
}

// shownStatus are the words of a status that make a difference to what was shown.
var shownStatus = map[string]changes.Status{"added": changes.Added, "deleted": changes.Deleted}

// sdkAnswer is the answer to an apply.
type sdkAnswer struct {
	Results      []sdkOutcome `json:"results"`
	AppliedCount int          `json:"applied_count"`
	WrittenAgain []string     `json:"written_again"`
	Error        *sdkError    `json:"error"`
}

type sdkOutcome struct {
	Path    string         `json:"path"`
	Status  changes.Status `json:"status"`
	Outcome apply.Outcome  `json:"outcome"`
	Reason  string         `json:"reason"`
}

type sdkError struct {
	Kind      string   `json:"kind"`
	Reason    string   `json:"reason"`
	Message   string   `json:"message"`
	Conflicts []string `json:"conflicts"`
	Refused   []string `json:"refused"`
}

// sdkApply brings changes back. What stands in the way is an error, but the answer of a
// dry run.
func (e *env) sdkApply(ctx context.Context, id record.ID) error {
	var r sdkApplied
	if err := e.sdkRequest(&r); err != nil {
		return err
	}
	var result apply.Result
	err := e.onServer(ctx, e.address(), func(ctx context.Context, s backend.Server) (err error) {
		result, err = e.sdkBringBack(ctx, s, id, r)
		return err
	})
	if r.DryRun && len(result.Paths) > 0 && errdefs.Is(err, errdefs.Precondition) {
		err = nil
	}
	return json.NewEncoder(e.stdout).Encode(sdkAnswerOf(result, err))
}

func (e *env) sdkBringBack(ctx context.Context, s backend.Server, id record.ID, r sdkApplied) (apply.Result, error) {
	u, err := uploaded.Find(e.getenv, id)
	if err != nil {
		return apply.Result{}, err
	}
	paths := make([]vpath.Path, len(r.Paths))
	for i, text := range r.Paths {
		if paths[i], err = vpath.ParseText(text); err != nil {
			return apply.Result{}, err
		}
	}
	take := backend.Reviewed{Digest: r.Digest}
	if r.Shown != nil {
		shown := make([]apply.CarriedChange, len(r.Shown))
		for i, c := range r.Shown {
			p, err := vpath.ParseText(c.Path)
			if err != nil {
				return apply.Result{}, err
			}
			shown[i] = apply.CarriedChange{Path: p, Status: cmp.Or(shownStatus[c.Status], changes.Modified), Mode: c.Mode, Target: vpath.DecodeText(c.Target), SHA256: c.SHA256}
		}
		take.Shown = apply.ShownChanges(shown)
	}
	return s.BringBack(ctx, string(id), u, paths, r.DryRun, take)
}

// sdkAnswerOf tells of an apply: what was applied comes last. The paths that stand in
// the way are told where nothing was applied.
func sdkAnswerOf(result apply.Result, err error) sdkAnswer {
	answer := sdkAnswer{Results: []sdkOutcome{}, WrittenAgain: []string{}, AppliedCount: result.Count(apply.Applied)}
	if err != nil {
		answer.Error = &sdkError{Kind: errdefs.KindOf(err).String(), Reason: string(errdefs.ReasonOf(err)), Message: oneLine(err)}
	}
	for _, p := range result.AppliedLast() {
		answer.Results = append(answer.Results, sdkOutcome{p.Path.Text(), p.Status, p.Outcome, p.Reason})
	}
	for _, p := range result.Changed {
		answer.WrittenAgain = append(answer.WrittenAgain, p.Text())
	}
	if answer.Error == nil || answer.AppliedCount > 0 || !errdefs.Is(err, errdefs.Precondition) {
		return answer
	}
	for _, p := range result.Paths {
		switch p.Outcome {
		case apply.Conflict:
			answer.Error.Conflicts = append(answer.Error.Conflicts, p.Path.Text())
		case apply.Refused:
			answer.Error.Refused = append(answer.Error.Refused, p.Path.Text())
		}
	}
	return answer
}

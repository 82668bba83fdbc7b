package portable

import (
	"bufio"
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
)

// Patch writes the changes to the new file name as a patch for git apply. Git has no form for
// directories and special files: the result lists them. Errors: Exists, Exhausted; Unsupported for
// a file that the patch cannot hold as text; those of review.Open.
func Patch(ctx context.Context, s *record.Sandbox, name string, how Options) (Result, error) {
	var result Result
	_, err := export(s, name, func(d *delta, o *safefs.NewFile) (err error) {
		f, err := os.OpenFile(o.Temporary, os.O_WRONLY, 0)
		if err != nil {
			return failed(name, err)
		}
		defer f.Close()
		r, err := review.Open(s)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		w := bufio.NewWriterSize(how.bound(f), writeBuffer)
		files := r.Files()
		for i := range files {
			if err := ctx.Err(); err != nil {
				return errdefs.New(errdefs.Canceled, "export: %w", err)
			}
			if err := d.patch(w, r, &files[i], &result); err != nil {
				return err
			}
		}
		if err := w.Flush(); err != nil {
			return failedWrite(name, err)
		}
		return nil
	})
	return result, err
}

// patch writes the patch of one file and counts it.
func (d *delta) patch(w *bufio.Writer, r *review.Review, f *review.FileDiff, result *Result) error {
	why := d.why(&f.Change)
	switch {
	case why != "":
	case !isOfGit(f.Old) || !isOfGit(f.New):
		why = "git has no form for a " + typeOf(f)
	case !d.work.Policy.ShowsContent(f.Path):
		why = "the policy does not show its content"
	}
	if why != "" {
		result.Skipped = append(result.Skipped, Skipped{f.Path, why})
		return nil
	}
	content, err := gitpatch.Write(w, r, f)
	if err != nil {
		return err
	}
	if !content.IsShown() {
		return errdefs.New(errdefs.Unsupported, "export %s: a patch cannot hold it: it is binary or too large, or what was there before was not kept: use another format", f.Path)
	}
	if f.New == nil {
		result.Deletions++
	} else {
		result.Entries++
	}
	return nil
}

func typeOf(f *review.FileDiff) string {
	if f.New != nil && !isOfGit(f.New) {
		return record.TypeName(f.New.Mode)
	}
	return record.TypeName(f.Old.Mode)
}

// isOfGit reports whether a patch has a form for the side.
func isOfGit(s *review.Side) bool {
	return s == nil || s.Mode&unix.S_IFMT == unix.S_IFREG || s.Mode&unix.S_IFMT == unix.S_IFLNK
}

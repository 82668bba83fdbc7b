package cli

import (
	"context"
	"slices"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// noScratch is the value of --scratch for no directory. A directory of that name is ./none.
const noScratch = "none"

// scratchFlags returns the directories of --scratch. Errors: Invalid.
func (o *sandboxOptions) scratchFlags() ([]string, error) {
	if !slices.Contains(o.Scratch, noScratch) {
		return o.Scratch, nil
	}
	if len(o.Scratch) > 1 {
		return nil, errdefs.New(errdefs.Invalid, "--scratch none: it excludes any other --scratch; a directory of this name is ./none")
	}
	return nil, nil
}

// useFile notes what a policy file says besides its rules.
func (o *sandboxOptions) useFile(doc *policyfile.Document) {
	o.marks, o.fileNetwork, o.fileScratch = doc.Marks, doc.Network, doc.Scratch
}

// withFileScratch returns the directories of --scratch and of the policy file. --scratch none
// counts instead of the file.
func (o *sandboxOptions) withFileScratch() ([]string, error) {
	dirs, err := o.scratchFlags()
	if err != nil || len(dirs) == 0 && len(o.Scratch) > 0 {
		return nil, err
	}
	for _, s := range o.fileScratch {
		at, err := scratch.Parse(s.Text)
		if err != nil {
			return nil, s.At(err)
		}
		isAt := func(text string) bool {
			p, err := scratch.Parse(text)
			return err == nil && p == at
		}
		if !slices.ContainsFunc(dirs, isAt) {
			dirs = append(slices.Clip(dirs), s.Text)
		}
	}
	return dirs, nil
}

// addFileScratch adds the scratch directories of the policy file to n. Errors: those of checks
// that n has passed without them.
func (o *sandboxOptions) addFileScratch(b backend.Backend, n *backend.NewSandbox) (err error) {
	if o.fileScratch == nil {
		return nil
	}
	if n.Scratch, err = o.withFileScratch(); err != nil {
		return err
	}
	return b.Check(*n)
}

// changeToFileScratch gives a known sandbox the scratch directories of the policy file and of
// --scratch, and no others. Errors: those of backend.Backend.Reopen.
func (o *sandboxOptions) changeToFileScratch(ctx context.Context, b backend.Backend, sb backend.Sandbox, r backend.Reopening) (backend.Sandbox, error) {
	if o.fileScratch == nil {
		return sb, nil
	}
	if err := o.addFileScratch(b, &r.New); err != nil {
		return sb, err
	}
	want, err := scratch.ParseAll(r.New.Scratch)
	if err != nil || slices.Equal(want, sb.Record.Scratch) {
		return sb, err
	}
	r.Flags, r.NewRules = []string{"scratch"}, false
	return b.Reopen(ctx, sb.Record.Name, r)
}

// scratchOf reads the scratch directories of a policy file. Errors: Invalid, with the place.
func scratchOf(doc *policyfile.Document) ([]scratch.Path, error) {
	var paths []scratch.Path
	for _, s := range doc.Scratch {
		path, err := scratch.Parse(s.Text)
		if err == nil {
			paths = append(paths, path)
			err = scratch.Check(paths, false)
		}
		if err != nil {
			return nil, s.At(err)
		}
	}
	return paths, nil
}

// checkScratch refuses a scratch directory of a policy file that rules p of the file exclude.
func checkScratch(doc *policyfile.Document, p *policy.Policy) error {
	paths, err := scratchOf(doc)
	if err != nil {
		return err
	}
	for i, path := range paths {
		if err := scratch.CheckPolicy(p, []scratch.Path{path}); err != nil {
			return doc.Scratch[i].At(err)
		}
	}
	return nil
}

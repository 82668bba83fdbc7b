package review

import (
	"maps"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
)

// Remember stores what r has shown of files, all of which its caller has shown
// with their contents, and returns its digest. What is not at or below the paths
// of r is as the digest base has it, if that is not "".
// Errors: NotFound, Precondition: base cannot be had; those of the host.
func (r *Review) Remember(base string, files []FileDiff) (string, error) {
	switch {
	case r.work == nil:
		return r.digest, nil
	case len(r.paths) == 0:
		return r.remember("", nil, files)
	}
	return r.remember(base, r.paths, files)
}

// RememberMore is Remember for the page of files that follows those of base.
func (r *Review) RememberMore(base string, files []FileDiff) (string, error) {
	return r.remember(base, nil, files)
}

// remember stores files beside what base has, but for what lies at and below
// replaced.
func (r *Review) remember(base string, replaced []vpath.Path, files []FileDiff) (digest string, err error) {
	return manifest.Store(r.work.Sandbox, base, func(m manifest.Manifest) {
		if len(replaced) > 0 {
			wanted := changes.Selection(replaced)
			maps.DeleteFunc(m, func(p vpath.Path, _ manifest.Entry) bool { return wanted(p) })
		}
		maps.Copy(m, r.implied)
		for _, f := range files {
			if e, is := r.shown[f.Path]; is {
				m[f.Path] = e
			}
		}
	})
}

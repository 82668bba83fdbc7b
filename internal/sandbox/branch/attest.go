package branch

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Attest returns the text of a statement about the commit of what shown has, which was
// Options.Shown. Errors: those of attest.Make.
func (r *Result) Attest(s *record.Sandbox, shown manifest.Manifest, about attest.About) ([]byte, error) {
	about.Commit = &attest.Commit{ID: r.Commit, Branch: vpath.Escape(r.branch), Parent: r.parent, Dir: r.dir.String()}
	about.Files = r.files
	return attest.Make(s, shown, &r.Result, about)
}

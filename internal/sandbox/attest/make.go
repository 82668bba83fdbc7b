package attest

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Choose returns what an attested apply takes, before it takes it: the state that was shown under a
// digest, or with "" that of a sandbox in which nothing runs. Errors: Precondition, also if the
// audit log is damaged; NotFound for a digest that is no longer stored.
func Choose(s *record.Sandbox, reviewed string, running bool) (digest string, shown manifest.Manifest, err error) {
	digest = reviewed
	switch {
	case digest != "":
	case running:
		return "", nil, ErrUnseen(s.Ref())
	default:
		if digest, err = manifest.StoreNow(s); err != nil {
			return "", nil, err
		}
	}
	if err := checkRecord(s); err != nil {
		return "", nil, errdefs.New(errdefs.KindOf(err), "nothing was applied: %w", err)
	}
	shown, err = manifest.Load(s, digest)
	return digest, shown, err
}

// ErrUnseen is the error for a running sandbox of which nothing was shown.
func ErrUnseen(ref string) error {
	return errdefs.New(errdefs.Precondition, "sandbox %s runs: to attest its changes, look at them first%s", ref, errdefs.Command("diff "+ref))
}

// Make returns the text of a statement about an apply of what shown has; nothing if nothing was
// applied. Errors: those of New.
func Make(s *record.Sandbox, shown manifest.Manifest, result *apply.Result, about About) ([]byte, error) {
	if result.Count(apply.Applied) == 0 {
		return nil, nil
	}
	log, err := audit.Verify(s.AuditPath())
	if err != nil {
		return nil, err
	}
	st, err := New(s, shown, result, &log, about)
	if err != nil {
		return nil, err
	}
	return st.Encode()
}

// changeBytes is the size in a statement of each change, without the texts in it, and of what else
// a statement says about the apply.
const changeBytes = 512

// MostBytes returns how large the statement about the changes at and below the paths is at most.
// Errors: those of reading the sandbox's record.
func MostBytes(s *record.Sandbox, shown manifest.Manifest, paths []vpath.Path) (int, error) {
	st, err := New(s, shown, &apply.Result{}, &audit.Summary{}, About{})
	if err != nil {
		return 0, err
	}
	text, err := st.Encode()
	size := len(text) + 2*changeBytes
	for p, entry := range shown {
		if isChosen(p, paths) {
			size += changeBytes + 4*len(p.String()) + 2*len(entry.Target) // a path is written twice
		}
	}
	return size, err
}

func isChosen(p vpath.Path, paths []vpath.Path) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, p.Within)
}

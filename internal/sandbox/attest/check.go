package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// CompareDir returns how the directory differs from what was applied, one text for each path. Of a
// mode it compares the type and whether the owner may execute the file, which is all that git
// keeps. It follows no symbolic link. Errors: those of the host.
func (st *Statement) CompareDir(dir string) ([]string, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "directory %s: %w", record.HostPath(dir), err)
	}
	defer unix.Close(root)
	var differ []string
	for i := range st.Predicate.Changes {
		p, want, err := st.Predicate.Changes[i].entry()
		if err != nil {
			return nil, err
		}
		what, err := compare(root, p, want)
		if err != nil {
			return nil, errdefs.New(safefs.Kind(err), "%s: %w", p, err)
		}
		if what != "" {
			differ = append(differ, fmt.Sprintf("%s: %s", p, what))
		}
	}
	return differ, nil
}

// compare returns how the entry at p differs, "" if it does not.
func compare(root int, p vpath.Path, want manifest.Entry) (string, error) {
	fd, err := safefs.Open(root, p.Rel(), unix.O_PATH|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		if want.Mode == 0 {
			return "", nil
		}
		return "is not there", nil
	case err != nil:
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	switch {
	case want.Mode == 0:
		return "was deleted, and is there", nil
	case st.Mode&unix.S_IFMT != want.Mode&unix.S_IFMT:
		return "has another type", nil
	case want.Mode&unix.S_IFMT == unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", target)
		if err == nil && record.HostPath(target[:n]).String() != want.Target {
			return "is a link to something else", nil
		}
		return "", err
	case !want.IsRegular():
		return "", nil
	case (st.Mode^want.Mode)&unix.S_IXUSR != 0:
		return fmt.Sprintf("has the mode %04o, not %04o", st.Mode&record.PermBits, want.Mode&record.PermBits), nil
	}
	return compareContent(root, p, want.SHA256)
}

func compareContent(root int, p vpath.Path, want string) (string, error) {
	f, err := safefs.OpenRegular(root, p.Rel())
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum, err := manifest.SumOf(f)
	if err == nil && sum != want {
		return "has another content", nil
	}
	return "", err
}

// CheckLog checks the audit log of the sandbox: its chain, that it has the record that the
// statement names, and that until then it has no policy and no contributor that the statement does
// not have, and has the commit that the statement has. Errors: Invalid if a check fails; NotFound,
// Denied.
func (st *Statement) CheckLog(path string) error {
	head, err := audit.ParseHead(st.Predicate.Audit.Head)
	if err != nil {
		return errdefs.New(errdefs.Invalid, "head of the audit log: %w", err)
	}
	summary, err := audit.Verify(path, head)
	if err != nil {
		return err
	}
	if string(summary.ID) != st.Predicate.Sandbox.ID {
		return errdefs.New(errdefs.Invalid, "audit log %s: it is of another sandbox", record.HostPath(path))
	}
	known, err := st.loggedPolicies()
	if err != nil {
		return err
	}
	hasCommit := st.Predicate.Commit == nil
	err = audit.Read(path, func(r audit.Record) error {
		if e, is := r.Event.(audit.Applied); is {
			hasCommit = hasCommit || r.Seq <= head.Seq && e.Commit == st.Predicate.Commit.ID && e.Mount == st.Predicate.Mount
		}
		if r.Seq > head.Seq {
			return nil
		}
		if what := st.lacks(r.Event, known); what != "" {
			return errdefs.New(errdefs.Invalid, "audit log %s: record %d %s", record.HostPath(path), r.Seq, what)
		}
		return nil
	})
	if err == nil && !hasCommit {
		return errdefs.New(errdefs.Invalid, "audit log %s: it has no record of the commit %s", record.HostPath(path), st.Predicate.Commit.ID)
	}
	return err
}

// lacks says what a record of the audit log has that the statement should have, "" for nothing.
func (st *Statement) lacks(e audit.Event, known [][]audit.Rule) string {
	var rules []audit.Rule
	var omitted int64
	switch e := e.(type) {
	case audit.SandboxCreated:
		rules, omitted = e.Rules, e.RulesOmitted
	case audit.PolicyChanged:
		rules, omitted = e.Rules, e.RulesOmitted
	default:
		if !st.hasContributor(e) {
			return "brings changes of a sandbox or file that the statement does not name"
		}
		return ""
	}
	if slices.ContainsFunc(known, func(k []audit.Rule) bool { return isLogged(k, rules, omitted) }) {
		return ""
	}
	return "has a policy that the statement does not have"
}

// loggedPolicies returns the policies as the audit log writes them.
func (st *Statement) loggedPolicies() ([][]audit.Rule, error) {
	var known [][]audit.Rule
	for _, p := range st.Predicate.Policies {
		rules, err := p.decode()
		if err != nil {
			return nil, err
		}
		known = append(known, record.AuditRules(rules))
	}
	return known, nil
}

// isLogged reports whether the log has the rules in this form: as texts, which may be cut.
func isLogged(rules, logged []audit.Rule, omitted int64) bool {
	if int64(len(rules)) != int64(len(logged))+omitted {
		return false
	}
	return slices.EqualFunc(rules[:len(logged)], logged, func(a, b audit.Rule) bool {
		return a.Permission == b.Permission && a.Type == b.Type && a.Priority == b.Priority && isSameText(a.Pattern, b.Pattern)
	})
}

func isSameText(full, logged audit.Text) bool {
	a, err := full.MarshalJSON()
	b, err2 := logged.MarshalJSON()
	return err == nil && err2 == nil && slices.Equal(a, b)
}

// ReadFiles reads a statement and its signature. Errors: NotFound, Denied, Invalid if one is too
// large.
func ReadFiles(file string) (text, signature []byte, err error) {
	if text, err = safefs.ReadNamed(file, maxStatement); err != nil {
		return nil, nil, err
	}
	signature, err = safefs.ReadNamed(file+SignatureSuffix, maxSignature)
	if errdefs.Is(err, errdefs.NotFound) || errors.Is(err, os.ErrNotExist) {
		err = errdefs.New(errdefs.NotFound, "the signature is missing: no file %s", vpath.Escape(filepath.Base(file)+SignatureSuffix))
	}
	return text, signature, err
}

// How large the files may be in bytes. A change takes about 200 bytes.
const (
	maxStatement = 256 << 20
	maxSignature = 64 << 10
)

// WriteNew writes a new file. Errors: Exists, those of the host.
func WriteNew(file string, text []byte) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return errdefs.New(safefs.Kind(err), "%w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(file) // half a statement is none
			err = errdefs.New(safefs.Kind(err), "%w", err)
		}
	}()
	if _, err = f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}

func (p *Policy) decode() ([]policy.Rule, error) {
	var rules []policy.Rule
	if err := json.Unmarshal(p.Rules, &rules); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "policy %s: %w", vpath.Quote(p.SHA256), err)
	}
	return rules, nil
}

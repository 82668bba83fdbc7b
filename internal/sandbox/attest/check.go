package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
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

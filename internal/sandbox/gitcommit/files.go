package gitcommit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Entry is a file of a tree.
type Entry struct {
	Mode string // in octal, as git writes it
	ID   string // of the blob, or of the commit of a submodule
}

// The modes of entries.
const (
	Regular    = "100644"
	Executable = "100755"
	Link       = "120000"
	Submodule  = "160000"
)

// Head returns the files of the commit HEAD by their paths in the repository.
func (r *Repository) Head(ctx context.Context) (map[string]Entry, error) {
	out, err := r.run(ctx, inScratch, nil, "ls-files", "-z", "--stage")
	if err != nil {
		return nil, err
	}
	files := map[string]Entry{}
	for line := range strings.SplitSeq(out, "\x00") {
		about, path, ok := strings.Cut(line, "\t")
		fields := strings.Fields(about)
		if !ok || len(fields) < 2 {
			continue
		}
		files[path] = Entry{fields[0], fields[1]}
	}
	return files, nil
}

// Put stores a content for Hash, and returns its name and the SHA-256 in hex.
func (r *Repository) Put(content io.Reader) (name, sum string, err error) {
	r.files++
	name = strconv.Itoa(r.files)
	f, err := os.OpenFile(r.path(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", "", hostError(err)
	}
	h := sha256.New()
	_, err = io.Copy(f, io.TeeReader(content, h))
	if err == nil && r.owner != nil {
		err = f.Chown(int(r.owner.Uid), int(r.owner.Gid))
	}
	return name, hex.EncodeToString(h.Sum(nil)), hostError(errors.Join(err, f.Close()))
}

func (r *Repository) path(name string) string { return filepath.Join(r.scratch.Path, "files", name) }

// Hash makes blobs of what Put stored, and returns their ids.
func (r *Repository) Hash(ctx context.Context, names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var list strings.Builder
	for _, name := range names {
		list.WriteString(r.path(name) + "\n")
	}
	out, err := r.run(ctx, inScratch, strings.NewReader(list.String()), "hash-object", "-w", "--no-filters", "--stdin-paths")
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(out)
	if len(ids) != len(names) {
		return nil, errdefs.New(errdefs.Internal, "git hash-object: %d ids for %d files", len(ids), len(names))
	}
	return ids, nil
}

// Merge stores the three-way merge of the texts ours and base, which Put has stored, and of the
// blob theirs. ok is false for a conflict, and for what is no text.
func (r *Repository) Merge(ctx context.Context, ours, base, theirs string) (merged string, ok bool, err error) {
	blob := r.command(ctx, inScratch, "cat-file", "blob", theirs)
	var text, complaint bytes.Buffer
	blob.Stdout, blob.Stderr = &text, &complaint
	if err := failed(ctx, blob.Run(), "cat-file", complaint.String()); err != nil {
		return "", false, err
	}
	name, _, err := r.Put(&text)
	if err != nil {
		return "", false, err
	}
	out, err := r.command(ctx, inScratch, "merge-file", "-p", "-q", r.path(ours), r.path(base), r.path(name)).Output()
	if _, is := errors.AsType[*exec.ExitError](err); is && ctx.Err() == nil {
		return "", false, nil
	}
	if err := failed(ctx, err, "merge-file", ""); err != nil {
		return "", false, err
	}
	merged, _, err = r.Put(bytes.NewReader(out))
	return merged, err == nil, err
}

// literal before a path keeps git from reading a colon at its start as magic.
const literal = "./"

// Ignored returns which of the paths git ignores. They are in no commit.
func (r *Repository) Ignored(ctx context.Context, paths []string) (map[string]bool, error) {
	ignored := map[string]bool{}
	if len(paths) == 0 {
		return ignored, nil
	}
	var list strings.Builder
	for _, path := range paths {
		list.WriteString(literal + path + "\x00")
	}
	out, err := r.run(ctx, inScratch, strings.NewReader(list.String()), "check-ignore", "-z", "--stdin")
	if err != nil && !errors.Is(err, errNo) {
		return nil, err
	}
	for path := range strings.SplitSeq(out, "\x00") {
		ignored[strings.TrimPrefix(path, literal)] = true
	}
	delete(ignored, "")
	return ignored, nil
}

// Filtered returns the filters that git would run for the contents of the paths.
func (r *Repository) Filtered(ctx context.Context, paths []string) (map[string]string, error) {
	filters := map[string]string{}
	if len(paths) == 0 {
		return filters, nil
	}
	out, err := r.run(ctx, inScratch, strings.NewReader(strings.Join(paths, "\x00")+"\x00"), "check-attr", "-z", "--stdin", "--cached", "filter")
	if err != nil {
		return nil, err
	}
	fields := strings.Split(out, "\x00")
	for ; len(fields) >= 3; fields = fields[3:] {
		if filter := fields[2]; filter != "unspecified" && filter != "unset" {
			filters[fields[0]] = filter
		}
	}
	return filters, nil
}

package scan

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// directory makes one with files.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// taken are the entries of a tree, each with its content or target.
func taken(t *testing.T, tree *Tree) map[string]string {
	t.Helper()
	got := map[string]string{}
	for {
		f, content, err := tree.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		text := f.Mode.String() + " " + f.Target
		if content != nil {
			read, err := io.ReadAll(content)
			content.Close()
			if err != nil || int64(len(read)) != f.SizeBytes {
				t.Errorf("%s: %d bytes of %d, %v", f.Path, len(read), f.SizeBytes, err)
			}
			text += string(read)
		}
		got[f.Path.Rel()] = text
	}
}

func TestTreeIsWhatNoPatternLeavesOut(t *testing.T) {
	dir := directory(t, map[string]string{"a": "a", "d/b": "b", "d/c.log": "c", ".env": "s", ".gitignore": "*.log\n", ".sandboxignore": "!keep.log\n", "keep.log": "k", "more/x": "x"})
	if err := errors.Join(os.Symlink("../outside", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "empty"), 0o700), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	tree, err := Open(dir, "more")
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	want := map[string]string{
		".gitignore": "-rw-r--r-- *.log\n", ".sandboxignore": "-rw-r--r-- !keep.log\n", "a": "-rw-r--r-- a", "d": "drwxr-xr-x ", "d/b": "-rw-r--r-- b",
		"empty": "drwx------ ", "keep.log": "-rw-r--r-- k", "link": "Lrwxrwxrwx ../outside",
	}
	if tree.Len() != len(want) || len(tree.Skipped) != 1 || tree.Skipped[0].Rel() != "pipe" {
		t.Errorf("%d entries, skipped %v", tree.Len(), tree.Skipped)
	}
	if diff := cmp.Diff(want, taken(t, tree)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatChangesWhileItIsReadIsNotFollowed(t *testing.T) {
	dir := directory(t, map[string]string{"a": "a"})
	tree, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	secret := filepath.Join(directory(t, map[string]string{"secret": "s"}), "secret")
	if err := errors.Join(os.Remove(filepath.Join(dir, "a")), os.Symlink(secret, filepath.Join(dir, "a"))); err != nil {
		t.Fatal(err)
	}
	if _, content, err := tree.Next(); !errdefs.Is(err, errdefs.Denied) || content != nil {
		t.Errorf("%v", err)
	}
}

// A link within the directory gets past os.Root, and past the patterns that leave
// out what it leads to.
func TestWhatBecomesALinkToAFileLeftOutIsNotFollowed(t *testing.T) {
	for name, swap := range map[string]func(dir string) error{
		"the file": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "d/a")), os.Symlink("../.env/a", filepath.Join(dir, "d/a")))
		},
		"its directory": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "d")), os.Symlink(".env", filepath.Join(dir, "d")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, map[string]string{"d/a": "a", ".env/a": "secret"})
			tree, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			if f, _, err := tree.Next(); f.Path.Rel() != "d" || err != nil {
				t.Fatal(f.Path, err)
			}
			if err := swap(dir); err != nil {
				t.Fatal(err)
			}
			if _, content, err := tree.Next(); !errdefs.Is(err, errdefs.Denied) || content != nil {
				t.Errorf("%v, %v", content, err)
			}
		})
	}
}

// Neither is waited for, nor read into memory.
func TestIgnoreFilesThatAreNone(t *testing.T) {
	for name, try := range map[string]struct {
		make func(path string) error
		says string
	}{
		"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		"a FIFO":      {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		"a link out":  {func(path string) error { return os.Symlink("/dev/zero", path) }, "ignore"},
		"a link": {func(path string) error {
			return errors.Join(os.WriteFile(filepath.Join(filepath.Dir(path), "other"), nil, 0o600), os.Symlink("other", path))
		}, "not a regular file"},
		"a broken link": {func(path string) error { return os.Symlink("absent", path) }, "not a regular file"},
		"a sparse file": {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) }, "bytes are more than 131072"},
	} {
		for _, file := range ignore.Names {
			dir := t.TempDir()
			if err := try.make(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(dir); !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), try.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestDirectoriesThatCannotBeOpened(t *testing.T) {
	dir := directory(t, map[string]string{"file": ""})
	if err := os.Mkdir(filepath.Join(dir, ".gitignore"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		dir, pattern string
		want         errdefs.Kind
	}{
		"an absent one":             {dir: dir + "/none", want: errdefs.NotFound},
		"none that is named":        {want: errdefs.Invalid},
		"a file":                    {dir: dir + "/file", want: errdefs.Invalid},
		"an ignore file that is no": {dir: dir, want: errdefs.Invalid},
		"a pattern without an end":  {dir: t.TempDir(), pattern: strings.Repeat("x", 2000), want: errdefs.Invalid},
	} {
		if _, err := Open(try.dir, try.pattern); !errdefs.Is(err, try.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

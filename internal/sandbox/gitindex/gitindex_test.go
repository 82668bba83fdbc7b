package gitindex

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// repository makes a repository in which two files are tracked and returns
// what runs git in it.
func repository(t *testing.T, format string) (dir string, git func(args ...string) string) {
	t.Helper()
	testenv.Command(t, "git")
	dir = t.TempDir()
	git = func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	git("init", "-q", "--object-format="+format)
	for _, name := range []string{".env", "a.txt", "dir/deep/.env", "dir/deep/b.txt"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git("add", ".")
	return dir, git
}

func isEnv(e Entry) bool { return filepath.Base(e.Path) == ".env" }

func never(Entry) bool { return false }

func TestSkipIsWhatGitReadsAndComesOffAgain(t *testing.T) {
	for _, c := range []struct{ name, format, version, setting string }{
		{"version 2", "sha1", "2", ""},
		{"version 4", "sha1", "4", ""},
		{"version 2 with SHA-256", "sha256", "2", ""},
		{"without a checksum", "sha1", "2", "index.skipHash"},
		{"with a table of offsets", "sha1", "4", "index.threads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, git := repository(t, c.format)
			if c.setting != "" {
				git("config", c.setting, "true")
			}
			git("update-index", "--index-version", c.version, "--force-write-index")
			path := filepath.Join(dir, ".git/index")
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			x, err := Parse(before)
			if err != nil {
				t.Fatal(err)
			}
			if !x.Skip(isEnv) {
				t.Fatal("nothing was marked")
			}
			marked := x.Encode()
			if err := os.WriteFile(path, marked, 0o644); err != nil {
				t.Fatal(err)
			}
			if got, want := git("ls-files", "-v"), "S .env\nH a.txt\nS dir/deep/.env\nH dir/deep/b.txt\n"; got != want {
				t.Errorf("ls-files -v: got %q, want %q", got, want)
			}
			again, err := Parse(marked)
			if err != nil {
				t.Fatal(err)
			}
			if !again.Skip(never) {
				t.Fatal("nothing was unmarked")
			}
			if c.setting == "" && !bytes.Equal(again.Encode(), before) {
				t.Error("without the marks it is not what it was")
			}
			if !Same(again, mustParse(t, before)) {
				t.Error("without the marks it does not mean what it did")
			}
		})
	}
}

func mustParse(t *testing.T, data []byte) *Index {
	t.Helper()
	x, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestSameLeavesStatDataOut(t *testing.T) {
	dir, git := repository(t, "sha1")
	path := filepath.Join(dir, ".git/index")
	read := func() *Index {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return mustParse(t, data)
	}
	before := read()
	if err := os.WriteFile(filepath.Join(dir, "copy"), []byte("a.txt"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "copy"), filepath.Join(dir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	git("update-index", "--refresh")
	if !Same(before, read()) {
		t.Error("an index that was only refreshed counts as changed")
	}
	git("update-index", "--assume-unchanged", "a.txt")
	if Same(before, read()) {
		t.Error("an assume-unchanged bit does not count")
	}
	git("update-index", "--no-assume-unchanged", "a.txt")
	git("rm", "-q", "--cached", "a.txt")
	if Same(before, read()) {
		t.Error("a removal does not count")
	}
}

func TestParseRefuses(t *testing.T) {
	dir, git := repository(t, "sha1")
	path := filepath.Join(dir, ".git/index")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	git("update-index", "--split-index")
	split, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[60] ^= 1
	unknown := bytes.Clone(whole)
	unknown[7] = 5
	many := bytes.Clone(whole[:len(whole)-20])
	many[8] = 0xff
	many = append(many, make([]byte, 20)...)
	for _, c := range []struct {
		name string
		data []byte
		want errdefs.Kind
	}{
		{"nothing", nil, errdefs.Invalid},
		{"another file", []byte("[core]\n\tfsmonitor = touch pwned\n"), errdefs.Invalid},
		{"a file that is cut off", whole[:len(whole)-30], errdefs.Invalid},
		{"a changed byte", flipped, errdefs.Invalid},
		{"more entries than there is room for", many, errdefs.Invalid},
		{"an unknown version", unknown, errdefs.Unsupported},
		{"a split index", split, errdefs.Unsupported},
		{"a file that is too large", make([]byte, MaxBytes+1), errdefs.Unsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Parse(c.data); !errdefs.Is(err, c.want) {
				t.Errorf("got %v, want the kind %v", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00" + strings.Repeat("\x00", 20)))
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + strings.Repeat("\x01", 60) + "\x00\x01\x00a\x00" + strings.Repeat("\x00", 20)))
	f.Add([]byte("DIRC\x00\x00\x00\x03\x00\x00\x00\x01" + strings.Repeat("\x01", 60) + "\x40\x01\x40\x00a\x00\x00\x00\x00\x00\x00\x00" + strings.Repeat("\x00", 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := Parse(data)
		if err != nil {
			return
		}
		var paths []string
		x.Entries(func(e Entry) { paths = append(paths, e.Path) })
		x.Skip(func(e Entry) bool { return len(e.Path)%2 == 0 })
		again, err := Parse(x.Encode())
		if err != nil {
			t.Fatalf("what was encoded is refused: %v", err)
		}
		n := 0
		again.Entries(func(e Entry) {
			if e.Path != paths[n] || e.SkipWorktree != (len(e.Path)%2 == 0) {
				t.Fatalf("entry %d: got %q, skip %v, want %q", n, e.Path, e.SkipWorktree, paths[n])
			}
			n++
		})
		if n != len(paths) || !Same(x, again) {
			t.Fatal("it is not what was encoded")
		}
	})
}

package apply_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/view/policy"
)

const remoteID = record.ID("sb_0123456789abcdef")

// uploadOf remembers that a directory with the files was uploaded, but for .env.
func uploadOf(t *testing.T, files map[string]string) (dir string, u *uploaded.Directory) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := home.ResolveSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	var noted uploaded.Files
	err = filepath.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		if err != nil || path == dir || info.Name() == ".env" {
			return err
		}
		p := vpath.Path(strings.TrimPrefix(path, dir))
		if info.IsDir() {
			return noted.Add(p, info, "", nil)
		}
		content, err := os.Open(path)
		if err != nil {
			return err
		}
		defer content.Close()
		return noted.Add(p, info, "", content)
	})
	if err != nil {
		t.Fatal(err)
	}
	rules := []policy.Rule{
		{Pattern: "**", Permission: policy.Write},
		{Pattern: "/hidden", Permission: policy.None, Priority: 9},
		{Pattern: "/read", Permission: policy.Read, Priority: 9},
	}
	if err := uploaded.Remember(home, remoteID, "cb_0123456789abcdef", source, rules, nil, &noted); err != nil {
		t.Fatal(err)
	}
	if u, err = uploaded.Open(home, remoteID); err != nil {
		t.Fatal(err)
	}
	return dir, u
}

// sent is a change that a server sends.
type sent struct {
	path    string
	status  changes.Status
	mode    uint32
	content string // of a file, or the target of a link
}

func bringBack(t *testing.T, u *uploaded.Directory, changes ...sent) (map[string]apply.Outcome, error) {
	t.Helper()
	result, err := apply.Upload(t.Context(), u, "fix", func(put func(apply.CarriedChange, io.Reader) error) error {
		for _, s := range changes {
			c := apply.CarriedChange{Path: vpath.Path(s.path), Status: s.status, Outcome: apply.Applied, Mode: s.mode}
			if s.mode&unix.S_IFMT == unix.S_IFLNK {
				c.Target = s.content
			} else {
				c.SizeBytes = int64(len(s.content))
			}
			if err := put(c, strings.NewReader(s.content)); err != nil {
				return err
			}
		}
		return nil
	}, false, nil)
	outcomes := map[string]apply.Outcome{}
	for _, r := range result.Paths {
		outcomes[string(r.Path)] = r.Outcome
	}
	return outcomes, err
}

const (
	aFile = unix.S_IFREG | 0o644
	aDir  = unix.S_IFDIR | 0o755
	aLink = unix.S_IFLNK | 0o777
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestAnUploadTakesWhatTheSandboxChanged(t *testing.T) {
	dir, u := uploadOf(t, map[string]string{"a": "one", "d/x": "x", "d/y/z": "z", "gone": "g", "f": "f", "run": "#!"})
	outcomes, err := bringBack(t, u,
		sent{"/a", changes.Modified, aFile, "two"},
		sent{"/d", changes.Retyped, aFile, "was a directory"},
		sent{"/d/x", changes.Deleted, 0, ""}, sent{"/d/y", changes.Deleted, 0, ""}, sent{"/d/y/z", changes.Deleted, 0, ""},
		sent{"/f", changes.Retyped, aDir, ""}, sent{"/f/in", changes.Added, aFile, "in"},
		sent{"/gone", changes.Deleted, 0, ""},
		sent{"/new", changes.Added, unix.S_IFDIR | 0o555, ""}, sent{"/new/l", changes.Added, aLink, "../a"},
		sent{"/run", changes.Modified, unix.S_IFREG | 0o6755, "#!"},
	)
	if err != nil {
		t.Fatal(err, outcomes)
	}
	for name, want := range map[string]string{"a": "two", "d": "was a directory", "f/in": "in", "new/l": "two"} {
		if got := read(t, dir, name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]uint32{"new": 0o555, "run": 0o755, "a": 0o644} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil || st.Mode&0o7777 != want {
			t.Errorf("%s has mode %o, %v, want %o", name, st.Mode&0o7777, err, want)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "new"), 0o755); err != nil {
		t.Fatal(err)
	}
	// What was applied is what the sandbox saw from then on.
	if outcomes, err := bringBack(t, u, sent{"/a", changes.Modified, aFile, "three"}, sent{"/f/in", changes.Deleted, 0, ""}); err != nil {
		t.Error(err, outcomes)
	}
	if got := read(t, dir, "a"); got != "three" {
		t.Errorf("a holds %q", got)
	}
}

// An apply that was killed after the directory had everything is done again: the
// codebase takes what is told as there, and gets nothing of what is not told.
func TestWhatTheDirectoryHasAlreadyIsTold(t *testing.T) {
	_, u := uploadOf(t, map[string]string{"a": "one", "d/x": "x", "gone": "g", "run": "#!"})
	all := []sent{
		{"/a", changes.Modified, aFile, "two"},
		{"/d/x", changes.Deleted, 0, ""},
		{"/gone", changes.Deleted, 0, ""},
		{"/new", changes.Added, aDir, ""},
		{"/new/f", changes.Added, aFile, "f"},
		{"/new/l", changes.Added, aLink, "../a"},
		{"/run", changes.Modified, unix.S_IFREG | 0o755, "#!"},
	}
	for _, want := range []apply.Outcome{apply.Applied, apply.Present} {
		outcomes, err := bringBack(t, u, all...)
		if err != nil {
			t.Fatal(err, outcomes)
		}
		for _, s := range all {
			if got := outcomes[s.path]; got != want {
				t.Errorf("%s is %q, want %q", s.path, got, want)
			}
		}
	}
}

// Nothing that a server says is trusted with what was not uploaded, has changed
// here since, is closed by the policy, or is outside.
func TestAHostileServerReachesOnlyWhatWasUploaded(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		changes []sent
		path    string // its outcome
		want    apply.Outcome
	}{
		{"a file that was not uploaded", []sent{{"/.env", changes.Modified, aFile, "evil"}}, "/.env", apply.Conflict},
		{"the removal of one", []sent{{"/.env", changes.Deleted, 0, ""}}, "/.env", apply.Kept},
		{"a directory that holds one", []sent{{"/d", changes.Deleted, 0, ""}, {"/d/x", changes.Deleted, 0, ""}}, "/d", apply.Kept},
		{"a link in its place", []sent{{"/.env", changes.Added, aLink, "/etc/passwd"}}, "/.env", apply.Conflict},
		{"a file that changed here", []sent{{"/changed", changes.Modified, aFile, "evil"}}, "/changed", apply.Conflict},
		{"the removal of it", []sent{{"/changed", changes.Deleted, 0, ""}}, "/changed", apply.Conflict},
		{"a path that the policy hides", []sent{{"/hidden", changes.Modified, aFile, "evil"}}, "/hidden", apply.Refused},
		{"a path that may be read alone", []sent{{"/read", changes.Modified, aFile, "evil"}}, "/read", apply.Refused},
		{"a file below a link that was made here", []sent{{"/link/evil", changes.Added, aFile, "evil"}}, "/link/evil", apply.Conflict},
		{"a file below a link that it sends", []sent{{"/l", changes.Added, aLink, outside}, {"/l/evil", changes.Added, aFile, "evil"}}, "/l/evil", apply.Conflict},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, u := uploadOf(t, map[string]string{
				"a": "a", ".env": "secret", "d/x": "x", "d/.env": "secret", "changed": "before", "hidden": "h", "read": "r",
			})
			if err := os.WriteFile(filepath.Join(dir, "changed"), []byte("here"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			outcomes, err := bringBack(t, u, tt.changes...)
			if got := outcomes[tt.path]; got != tt.want {
				t.Errorf("%s: got %q (%v), want %q", tt.path, got, outcomes, tt.want)
			}
			if stops := tt.want == apply.Conflict || tt.want == apply.Refused; stops != errdefs.Is(err, errdefs.Precondition) {
				t.Errorf("it ends with %v", err)
			}
			for name, want := range map[string]string{".env": "secret", "d/.env": "secret", "changed": "here", "hidden": "h", "read": "r"} {
				if got := read(t, dir, name); got != want {
					t.Errorf("%s holds %q, want %q", name, got, want)
				}
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("outside: %v, %v", left, err)
			}
		})
	}
}

func TestAContentThatIsNotWhatWasReviewedIsLeftOut(t *testing.T) {
	dir, u := uploadOf(t, map[string]string{"a": "one"})
	result, err := apply.Upload(t.Context(), u, "fix", func(put func(apply.CarriedChange, io.Reader) error) error {
		return put(apply.CarriedChange{
			Path: "/a", Status: changes.Modified, Outcome: apply.Applied, Mode: aFile, SizeBytes: 4, SHA256: strings.Repeat("0", 64),
		}, strings.NewReader("evil"))
	}, false, nil)
	if err != nil || result.Count(apply.ChangedSinceReview) != 1 || read(t, dir, "a") != "one" {
		t.Errorf("got %v, %v, and the file holds %q", result.Paths, err, read(t, dir, "a"))
	}
}

// What one apply has staged, another one would empty, and then tell as present.
func TestOneApplyAtATimeToADirectory(t *testing.T) {
	_, u := uploadOf(t, map[string]string{"a": "a"})
	release, err := u.LockApply()
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(func(apply.CarriedChange, io.Reader) error) error {
		t.Error("an apply fetches while another one runs")
		return nil
	}
	if _, err := apply.Upload(t.Context(), u, "fix", fetch, false, nil); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Upload beside another apply: %v", err)
	}
	release()
	nothing := func(func(apply.CarriedChange, io.Reader) error) error { return nil }
	if _, err := apply.Upload(t.Context(), u, "fix", nothing, false, nil); err != nil {
		t.Errorf("Upload after it: %v", err)
	}
}

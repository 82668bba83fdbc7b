package githistory

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestCommitsReadsPacks(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			r := newRepo(t, format)
			first, second, third := r.commit("a"), r.commit("b"), r.commit("c")
			r.git("gc", "-q", "--prune=now")
			_, o := r.open()
			got, err := Commits(t.Context(), o, []string{third}, []string{first}, nil, 10, false)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]Commit{second: {[]string{first}, "b"}, third: {[]string{second}, "c"}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			got, err = Commits(t.Context(), o, []string{third}, nil, nil, 1, false)
			if _, ok := got[third]; err != nil || len(got) != 1 || !ok {
				t.Errorf("one commit: got %v, %v", got, err)
			}
			if err := os.RemoveAll(filepath.Join(r.dir, ".git/objects/pack")); err != nil {
				t.Fatal(err)
			}
			if got, err := Commits(t.Context(), o, []string{third}, nil, nil, 10, false); len(got) > 0 {
				t.Errorf("without the pack: got %v, %v", got, err)
			}
		})
	}
}

// A pack's index may give an object another id. Git does not look, where it reads a
// commit that another one names.
func TestCommitsTakesNoCommitOfAnotherID(t *testing.T) {
	r := newRepo(t, "sha1")
	r.commit("a")
	second := r.commit("b")
	r.git("gc", "-q", "--prune=now")
	packs, err := filepath.Glob(filepath.Join(r.dir, ".git/objects/pack/*.idx"))
	if err != nil || len(packs) != 1 {
		t.Fatal(packs, err)
	}
	index, err := os.ReadFile(packs[0])
	if err != nil {
		t.Fatal(err)
	}
	id, err := hex.DecodeString(second)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(index, id)
	if at < 0 {
		t.Fatal("the index has no such commit")
	}
	index[at+len(id)-1] ^= 1
	id[len(id)-1] ^= 1
	other := hex.EncodeToString(id)
	if err := os.Chmod(packs[0], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(packs[0], index, 0o644); err != nil {
		t.Fatal(err)
	}
	tip := r.git("commit-tree", "-p", other, "-m", "tip", "4b825dc642cb6eb9a060e54bf8d69288fbee4904")
	_, o := r.open()
	got, err := Commits(t.Context(), o, []string{tip}, nil, nil, 10, false)
	if _, ok := got[other]; ok {
		t.Errorf("got %v, %v", got, err)
	}
	if _, ok := got[tip]; err == nil && !ok {
		t.Errorf("got %v, want the true commit at least", got)
	}
}

func TestCommitsReadsSoMuch(t *testing.T) {
	r := newRepo(t, "sha1")
	message := strings.Repeat("x", commitMax-1000)
	var text strings.Builder
	for range batchMax/commitMax + 2 {
		fmt.Fprintf(&text, "commit refs/heads/main\ncommitter a <a@example.org> 1 +0000\ndata %d\n%s\n", len(message), message)
	}
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(text.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("fast-import: %v\n%s", err, out)
	}
	_, o := r.open()
	got, err := Commits(t.Context(), o, []string{r.git("rev-parse", "HEAD")}, nil, nil, 1000, false)
	if !errdefs.Is(err, errdefs.Precondition) || len(got) != batchMax/commitMax {
		t.Errorf("got %d commits, %v", len(got), err)
	}
}

// Behind the wall neither alternates nor links lead out of the objects.
func TestCommitsBehindAWallStaysInTheObjects(t *testing.T) {
	testenv.Landlock(t, 1)
	other := newRepo(t, "sha1")
	tip := other.commit("secret")
	other.git("repack", "-q", "-a", "-d")
	objects := filepath.Join(other.dir, ".git/objects")
	for name, lead := range map[string]func(to string) error{
		"nowhere": nil,
		"by alternates": func(to string) error {
			return os.WriteFile(filepath.Join(to, "info/alternates"), []byte(objects+"\n"), 0o644)
		},
		"by a link": func(to string) error {
			return errors.Join(os.RemoveAll(filepath.Join(to, "pack")), os.Symlink(filepath.Join(objects, "pack"), filepath.Join(to, "pack")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepo(t, "sha1")
			own := r.commit("own")
			r.git("repack", "-q", "-a", "-d")
			_, o := r.open()
			got, err := Commits(t.Context(), o, []string{own}, nil, nil, 10, true)
			if err != nil || got[own].Subject != "own" {
				t.Fatalf("own: got %v, %v", got, err)
			}
			if lead == nil {
				return
			}
			if err := lead(filepath.Join(r.dir, ".git/objects")); err != nil {
				t.Fatal(err)
			}
			if got, err := Commits(t.Context(), o, []string{tip}, nil, nil, 10, false); err != nil || got[tip].Subject != "secret" {
				t.Fatalf("without a wall: got %v, %v", got, err)
			}
			if got, err := Commits(t.Context(), o, []string{tip}, nil, nil, 10, true); len(got) > 0 {
				t.Errorf("behind the wall: got %v, %v", got, err)
			}
			if _, err := os.ReadDir("/etc"); err != nil {
				t.Errorf("the wall is around us: %v", err)
			}
		})
	}
}

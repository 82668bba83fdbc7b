package attack_test

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// commitSource makes a repository whose policy hides .env and keep.
const commitSource = `mkdir keep; echo SECRET >.env; echo SECRET >keep/key; echo a >a.txt; echo r >read.txt
git init -q -b main; git config user.name You; git config user.email you@example.org; git add .; git commit -qm first`

var commitFlags = []string{"--git=clean", "--preset", "development", "--hide", ".env", "--hide", "keep", "--read", "/read.txt"}

// onTree makes commit with a tree of the entry that a script prints, and the blob of a.txt.
const onTree = `
raw() { git cat-file tree HEAD | head -c $((7+5+1+20)) | tail -c 20; }
commit() { T=$(git hash-object -t tree --literally -w --stdin); git update-ref HEAD $(echo x | git commit-tree -p HEAD $T); }
`

// What commands write in a clean repository runs nothing outside when its commits are listed and
// applied, brings nothing of the host in, and leaves what is hidden as it was.
func TestHostileRepositoriesRunNothingWhenCommitsAreTaken(t *testing.T) {
	testenv.Command(t, "git")
	testenv.Overlay(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a.txt": "a\n"}, who...)
		runIn(t, s.Source, commitSource)
		ownEverything(t, s)
		head := gitIn(t, s.Source, "rev-parse", "HEAD")
		secret := gitIn(t, s.Source, "rev-parse", "HEAD:.env")
		mark := filepath.Join(s.Source, "ran")
		r := s.Run(committing+fmt.Sprintf(`set -e
echo b >b.txt; echo evil >.env; mkdir -p keep; echo evil >keep/key; git add b.txt; git add -f .env keep/key
printf 'good \033]0;x\007 %[2]s of %[3]s\n' | git commit -q -F -
RUN="touch %[1]s"
git config core.fsmonitor "$RUN"; git config core.hooksPath .git/evil; git config core.alternateRefsCommand "$RUN"; git config uploadpack.packObjectsHook "$RUN"
git config core.sshCommand "$RUN"; git config gpg.program /bin/false; git config extensions.partialClone evil; git config remote.evil.promisor true; git config remote.evil.url "ext::sh -c '$RUN'"
mkdir .git/evil; for h in reference-transaction post-index-change pre-commit post-checkout; do printf '#!/bin/sh\n%%s\n' "$RUN" >.git/evil/$h; done; chmod +x .git/evil/*; cp .git/evil/* .git/hooks/
echo '* filter=evil export-subst merge=evil' >.git/info/attributes
git rev-parse HEAD >.git/info/grafts; git rev-parse HEAD >.git/shallow
mkdir -p .git/refs/replace; git rev-parse HEAD >.git/refs/replace/$(git rev-parse HEAD^{tree})
echo %[4]s/.git/objects >.git/objects/info/alternates; mkfifo .git/objects/info/packs; echo x >.git/objects/info/commit-graph
printf '%%s refs/heads/../../../pwned\n%%s refs/heads/a b\n' $(cat .git/refs/heads/main) $(cat .git/refs/heads/main) >>.git/packed-refs
printf '[include]\n\tpath = /dev/zero\n' >>.git/config
`, mark, strings.TrimSpace(head), strings.TrimSpace(secret), s.Source), commitFlags...)
		wantCode(t, r, 0)
		list := agentfense(t, s, "commits", s.Name)
		if strings.ContainsAny(list, "\x1b\x07") || !strings.Contains(list, ".env  (left out") || strings.Contains(list, "pwned") {
			t.Errorf("the list is %q", list)
		}
		agentfense(t, s, "apply", s.Name, "--commits", "--to-branch", "out")
		if exists(mark) {
			t.Error("something of the repository ran")
		}
		for path, want := range map[string]string{"out:.env": "SECRET\n", "out:keep/key": "SECRET\n", "out:b.txt": "b\n"} {
			if got := gitIn(t, s.Source, "show", path); got != want {
				t.Errorf("%s is %q", path, got)
			}
		}
		if got := gitIn(t, s.Source, "log", "-1", "--format=%s", "out"); strings.ContainsAny(got, "\x1b\x07") {
			t.Errorf("the message is %q", got)
		}
		if got := gitIn(t, s.Source, "rev-parse", "HEAD", "out^"); got != head+head {
			t.Errorf("HEAD and the parent are %s, want %s", got, head)
		}
		gitIn(t, s.Source, "fsck", "--strict")
		if got := gitIn(t, s.Source, "for-each-ref", "--format=%(refname)"); got != "refs/heads/main\nrefs/heads/out\n" {
			t.Errorf("the refs are %q", got)
		}
	})
}

// Objects and refs that git would follow elsewhere, or that a checkout would, are refused, and then
// nothing in the source has changed.
func TestHostileCommitsAreRefused(t *testing.T) {
	testenv.Command(t, "git")
	testenv.Overlay(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a.txt": "a\n", "bomb": bomb(t)}, who...)
		runIn(t, s.Source, commitSource)
		ownEverything(t, s)
		untouched := s.Untouched()
		name := s.Name
		n := 0
		for what, c := range map[string]struct{ script, want string }{
			"a tree entry .git":              {`{ printf '100644 .git\0'; raw; } | commit`, "git index-pack"},
			"a tree entry .GIT":              {`{ printf '100644 .GIT\0'; raw; } | commit`, "git index-pack"},
			"a tree entry git~1":             {`{ printf '100644 git~1\0'; raw; } | commit`, "git index-pack"},
			"a tree entry ..":                {`{ printf '100644 ..\0'; raw; } | commit`, "git index-pack"},
			"an absolute tree entry":         {`{ printf '100644 /etc/passwd\0'; raw; } | commit`, "git index-pack"},
			"a submodule":                    {`git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),m; git commit -qm m`, "a submodule"},
			"a .gitmodules with a command":   {`printf '[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch\n' >.gitmodules; git add .; git commit -qm m`, "git index-pack"},
			"a file that may only be read":   {`git update-index --cacheinfo 100644,$(git rev-parse HEAD:a.txt),read.txt; git commit -qm r`, "not write it"},
			"an unrelated history":           {`git checkout -q --orphan o; git commit -qm o`, "has no parent"},
			"a huge object":                  {`mkdir -p .git/objects/12; cp bomb .git/objects/12/34567890123456789012345678901234567890; git commit -q --allow-empty -m b`, "more than 1 GiB"},
			"a link in place of refs":        {`git commit -q --allow-empty -m b; mv .git/refs/heads .git/h; ln -s ../h .git/refs/heads`, "refs"},
			"a link in place of a ref":       {`git commit -q --allow-empty -m b; ln -s /etc/passwd .git/refs/heads/x`, "refs"},
			"a link in place of HEAD":        {`git commit -q --allow-empty -m b; ln -sf /etc/passwd .git/HEAD`, "HEAD"},
			"a link in place of packed refs": {`git commit -q --allow-empty -m b; rm .git/packed-refs; ln -s /etc/passwd .git/packed-refs`, "packed-refs"},
			"an object of the alternate":     {fmt.Sprintf(`T=$(printf '100644 blob %s\tx\n' | git mktree --missing); git update-ref HEAD $(echo x | git commit-tree -p HEAD $T); echo %s/.git/objects >.git/objects/info/alternates`, strings.TrimSpace(gitIn(t, s.Source, "rev-parse", "HEAD:.env")), s.Source), "git "},
		} {
			n++
			s.Name = fmt.Sprintf("%s%d", name, n)
			wantCode(t, s.Run(committing+onTree+"set -e\n"+c.script, commitFlags...), 0)
			r := s.Agentfense("apply", s.Name, "--commits", "--to-branch", "out")
			if r.Code == 0 || !strings.Contains(r.Stderr, c.want) {
				t.Errorf("%s: exit code %d, %s", what, r.Code, r.Stderr)
			}
			agentfense(t, s, "rm", "--force", s.Name)
		}
		s.Name = name
		untouched()
	})
}

// bomb is a loose object that claims to have 2 GB.
func bomb(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	if _, err := z.Write([]byte("blob 2000000000\x00" + strings.Repeat("\x00", 1<<20))); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Commits that cannot be read keep a sandbox from being removed without a question.
func TestUnreadableCommitsAreNotRemoved(t *testing.T) {
	testenv.Command(t, "git")
	testenv.Overlay(t)
	s := harness.New(t, binary, map[string]string{"a.txt": "a\n"})
	runIn(t, s.Source, commitSource)
	ownEverything(t, s)
	wantCode(t, s.Run(committing+"git commit -q --allow-empty -m b; ln -sf /etc/passwd .git/HEAD", commitFlags...), 0)
	if r := s.Agentfense("rm", s.Name); r.Code == 0 || !strings.Contains(r.Stderr, "commits that are nowhere else") {
		t.Errorf("exit code %d, %s", r.Code, r.Stderr)
	}
}

package transplant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
)

// bring transplants commits with these subjects, and notes what became of them.
func (b *box) bring(p Plan, subjects ...string) *Transplanted {
	b.t.Helper()
	r, err := b.transplant(p)
	if err != nil || r.Tip == "" {
		b.t.Fatalf("%+v, %v", r, err)
	}
	became := map[string]cleangit.Became{}
	var made []string
	for _, m := range r.Moved {
		became[m.ID] = cleangit.Became{Real: m.Real}
		made = append(made, m.Subject())
	}
	if diff := cmp.Diff(subjects, made); diff != "" {
		b.t.Errorf("(-want +got)\n%s", diff)
	}
	if err := b.store.NoteTaken(became); err != nil {
		b.t.Fatal(err)
	}
	return r
}

// continueAt makes a commit the source's branch, with a commit of its owner on top of it.
func (b *box) continueAt(tip, script string) string {
	b.t.Helper()
	gittest.Git(b.t, b.source, nil, "reset", "-q", "--hard", tip)
	gittest.Script(b.t, b.source, script)
	return gittest.Git(b.t, b.source, nil, "rev-parse", "HEAD")
}

// What the source's branch has from an earlier transplant is made once: new commits continue it, at
// the present state of the branch. When the branch has it no more, all are made again.
func TestCommitsAreMadeOnce(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, "echo 2 >c; git add .; git commit -qm 2"), "clean:50", "h")
	before := gittest.Git(t, b.source, nil, "rev-parse", "HEAD")
	bring := func(subjects ...string) *Transplanted {
		t.Helper()
		r := b.bring(Plan{}, subjects...)
		gittest.Git(t, b.source, nil, "reset", "-q", "--hard", r.Tip)
		return r
	}
	b.run("echo d >d; git add d; git commit -qm d; echo e >e; git add e; git commit -qm e")
	bring("d", "e")
	if r, err := b.transplant(Plan{}); !errdefs.Is(err, errdefs.Precondition) || r.Present != 2 {
		t.Errorf("again: %+v, %v", r, err)
	}
	gittest.Script(t, b.source, "echo other >other; git add other; git commit -qm other")
	theirs := strings.TrimSpace(gittest.Git(t, b.source, nil, "rev-parse", "HEAD"))
	b.run("echo f >>d; git commit -qam f")
	if r := bring("f"); r.Present != 2 {
		t.Errorf("%d present", r.Present)
	}
	if got := strings.TrimSpace(gittest.Git(t, b.source, nil, "rev-parse", "HEAD^")); got != theirs {
		t.Errorf("it continues %s, want %s", got, theirs)
	}
	gittest.Git(t, b.source, nil, "reset", "-q", "--hard", strings.TrimSpace(before))
	bring("d", "e", "f")
}

// Commits that the branch has stay known when they are made again for another branch.
func TestCommitsOnSeveralBranches(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, ""), "clean:50", "h")
	b.run("echo d >d; git add d; git commit -qm d; echo e >e; git add e; git commit -qm e")
	theirs := b.continueAt(b.bring(Plan{}, "d", "e").Tip, "echo other >other; git add other; git commit -qm other")
	b.bring(Plan{AtBase: true}, "d", "e")
	if r, err := b.transplant(Plan{}); !errdefs.Is(err, errdefs.Precondition) || r == nil || r.Present != 2 {
		t.Errorf("again: %+v, %v", r, err)
	}
	b.run("git checkout -q -b second HEAD^; echo f >f; git add f; git commit -qm f")
	r := b.bring(Plan{Ref: "refs/heads/second"}, "f")
	if got := gittest.Git(t, b.source, nil, "rev-parse", r.Tip+"^"); got != theirs {
		t.Errorf("it continues %s, want %s", got, theirs)
	}
}

// A merge of commits that the branch has and of new ones brings the new ones alone, whichever
// parent comes first.
func TestMergesOfPresentAndNewCommits(t *testing.T) {
	testenv.Command(t, "git")
	for _, merge := range []string{
		"git checkout -q -b new HEAD~2; echo n >n; git add n; git commit -qm n; git checkout -q main; git merge -q --no-ff -m merge new",
		"git checkout -q -b new HEAD~2; echo n >n; git add n; git commit -qm n; git merge -q -m merge main",
		"git checkout -q -b new HEAD^; echo n >n; git add n; git commit -qm n; git checkout -q main; git merge -q --no-ff -m merge new",
	} {
		b := newBox(t, gittest.Repository(t, ""), "clean:50", "h")
		b.run("echo d >d; git add d; git commit -qm d; echo e >e; git add e; git commit -qm e")
		theirs := b.continueAt(b.bring(Plan{}, "d", "e").Tip, "echo h2 >h; echo b2 >b; git add .; git commit -qm theirs")
		b.run(merge)
		r, err := b.transplant(Plan{})
		if err != nil || r.Tip == "" || len(r.Moved) != 2 || r.Present != 2 {
			t.Fatalf("%s: %+v, %v", merge, r, err)
		}
		if base := gittest.Git(t, b.source, nil, "merge-base", r.Tip, theirs); base != theirs {
			t.Errorf("%s: the branch is not continued", merge)
		}
		gittest.Git(t, b.source, nil, "diff", "--exit-code", theirs, r.Tip, "--", "h", "b")
		if diff := gittest.Git(t, b.source, nil, "diff", "--name-only", theirs, r.Tip); diff != "n" {
			t.Errorf("%s: it changes %q, want n", merge, diff)
		}
	}
}

// A commit of hidden files below those that the branch has does not come back when the policy shows
// the files.
func TestWhatWasLeftOutStaysBelow(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, ""), "clean:50", "h*")
	b.run("echo x >hidden; git add hidden; git commit -qm hidden; echo e >e; git add e; git commit -qm e")
	b.continueAt(b.bring(Plan{}, "hidden", "e").Tip, "")
	b.run("echo f >f; git add f; git commit -qm f")
	b.policy = newBox(t, b.source, "clean:50", "h").policy
	if r := b.bring(Plan{}, "f"); r.Present != 2 {
		t.Errorf("%d present, want 2", r.Present)
	}
}

// Ids of commits that the branch has become those that they have there, in messages too.
func TestIDsOfPresentCommits(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, ""), "clean:50", "h")
	b.run("echo d >d; git add d; git commit -qm d")
	tip := b.bring(Plan{}, "d").Tip
	b.continueAt(tip, "")
	b.run("echo e >e; git add e; git commit -qm \"after $(git rev-parse HEAD)\"")
	b.bring(Plan{}, "after "+gittest.Git(t, b.upper, nil, "rev-parse", "HEAD^"))
	if got := gittest.Git(t, b.source, nil, "log", "-1", "--format=%s", "out"); got != "after "+tip {
		t.Errorf("%q, want the id %s", got, tip)
	}
}

// A merge with an older commit as its first parent keeps what the branch has got meanwhile in a
// file that the commits change, or is refused.
func TestAMergeKeepsWhatTheSandboxDidNotSee(t *testing.T) {
	testenv.Command(t, "git")
	const lines = "seq 9 >a; "
	for _, c := range []struct{ name, sandbox, theirs, refused string }{
		{"another line of a file that the older branch changes", "sed -i s/9/nine/ a; git commit -qam d; git merge -q -m merge main", "sed -i s/1/one/ a; git commit -qam theirs", "a"},
		{"a file that the older branch does not change", "echo d >d; git add d; git commit -qm d; git merge -q -m merge main", "sed -i s/1/one/ a; git commit -qam theirs", "a"},
		{"a file that they deleted", "sed -i s/9/nine/ a; git commit -qam d; git merge -q -m merge main", "git rm -q a; git commit -qm theirs", "a"},
		{"the same change", "sed -i s/9/nine/ a; git commit -qam d; git merge -q -m merge main", "sed -i s/9/nine/ a; git commit -qam theirs", ""},
		{"the newer commit as first parent", "sed -i s/9/nine/ a; git commit -qam d; git checkout -q main; git merge -q --no-ff -m merge topic", "sed -i s/1/one/ a; git commit -qam theirs", ""},
		{"what the sandbox has seen", "sed -i s/9/nine/ a; git commit -qam d; git merge -q -m merge main", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, gittest.Repository(t, lines+"git commit -qam a; echo 2 >c; git add .; git commit -qm 2"), "clean:50", "h")
			gittest.Script(t, b.source, c.theirs)
			b.run("git checkout -q -b topic HEAD^; " + c.sandbox)
			r, err := b.transplant(Plan{})
			if err != nil {
				t.Fatal(err)
			}
			var refused []string
			for _, x := range r.Refused {
				refused = append(refused, x.Path)
			}
			if got := strings.Join(refused, " "); got != c.refused || (r.Tip == "") != (c.refused != "") {
				t.Errorf("%+v, want %q refused", r, c.refused)
			}
		})
	}
}

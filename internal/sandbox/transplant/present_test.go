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

// What the source's branch has from an earlier transplant is made once: new commits continue it, at
// the present state of the branch. When the branch has it no more, all are made again.
func TestCommitsAreMadeOnce(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, "echo 2 >c; git add .; git commit -qm 2"), "clean:50", "h")
	before := gittest.Git(t, b.source, nil, "rev-parse", "HEAD")
	bring := func(subjects ...string) *Transplanted {
		t.Helper()
		r, err := b.transplant(Plan{})
		if err != nil || r.Tip == "" {
			t.Fatalf("%+v, %v", r, err)
		}
		became := map[string]cleangit.Became{}
		var made []string
		for _, m := range r.Moved {
			became[m.ID] = cleangit.Became{Real: m.Real}
			made = append(made, m.Subject())
		}
		if diff := cmp.Diff(subjects, made); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if err := b.store.NoteTaken(became); err != nil {
			t.Fatal(err)
		}
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

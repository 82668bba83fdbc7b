package reviewui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// fake is a sandbox whose changes are in memory. It applies what it is asked for.
type fake struct {
	backend.Backend
	files     []review.FileDiff
	groups    []review.Group
	texts     map[vpath.Path]string
	old       map[vpath.Path]string
	hunks     [][]string // that were applied
	records   []audit.Record
	applied   [][]vpath.Path
	discarded []vpath.Path
	asks      []api.Ask
	answers   []api.Answer
}

func (f *fake) add(path vpath.Path, text string, mark *review.RiskFlag) {
	f.files = append(f.files, review.FileDiff{Path: path, Status: changes.Added, New: &review.Side{Mode: 0o100644, SizeBytes: int64(len(text))}, Mark: mark})
	f.texts[path] = text
}

func (f *fake) Inspect(context.Context, string) (backend.Inspection, error) {
	return backend.Inspection{Sandbox: backend.Sandbox{Record: record.Record{Name: "fix"}, Status: record.Running}}, nil
}

func (f *fake) Audit(_ context.Context, _ string, after uint64, _ bool, do func(audit.Record) error) error {
	for _, r := range f.records {
		if r.Seq > after {
			if err := do(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fake) Asks(context.Context, string) ([]api.Ask, error) { return f.asks, nil }

func (f *fake) AnswerAsk(_ context.Context, _ string, a api.Answer) error {
	f.answers = append(f.answers, a)
	return nil
}

// changesOf is the part of it that Changes has.
type changesOf struct {
	backend.Changes
	*fake
}

func (c changesOf) Sandbox() backend.Sandbox { return backend.Sandbox{} }

func (c changesOf) Lost() error { return nil }

func (c changesOf) Review(_ context.Context, paths []vpath.Path, _ backend.Detail) (*backend.Review, error) {
	files := slices.Clone(c.files)
	if len(paths) > 0 {
		files = slices.DeleteFunc(files, func(f review.FileDiff) bool { return !slices.Contains(paths, f.Path) })
	}
	if len(files) < len(paths) {
		return nil, errdefs.New(errdefs.NotFound, "nothing changed at a path")
	}
	content := func(f *review.FileDiff) (review.Content, error) {
		text := c.texts[f.Path]
		return review.Content{Hunks: textdiff.Hunks([]byte(c.old[f.Path]), []byte(text)), SHA256: fmt.Sprintf("sum of %s", text)}, nil
	}
	return &backend.Review{
		Review:   review.Of("fix", "", "", "digest", files, c.groups, content),
		Remember: func() (string, error) { return "digest", nil },
		Note:     func(string) error { return nil },
	}, nil
}

func (c changesOf) Apply(_ context.Context, o backend.ApplyOptions) (a backend.Applied, err error) {
	if o.Reviewed != "digest" {
		return a, errors.New("not what was shown")
	}
	if len(o.Hunks) > 0 {
		c.hunks = append(c.hunks, o.Hunks)
		a.Paths = []apply.PathResult{{Path: "/c.txt", Outcome: apply.Applied, Hunks: 1, OfHunks: 2}}
		return a, nil
	}
	c.applied = append(c.applied, o.Paths)
	for _, p := range o.Paths {
		a.Paths = append(a.Paths, apply.PathResult{Path: p, Outcome: apply.Applied})
	}
	c.files = slices.DeleteFunc(c.files, func(f review.FileDiff) bool { return slices.Contains(o.Paths, f.Path) })
	return a, nil
}

func (c changesOf) Discard(_ context.Context, paths []vpath.Path, _ bool) (d backend.Discarded, err error) {
	c.discarded = append(c.discarded, paths...)
	d.Paths = paths
	return d, nil
}

// person uses a screen. Commands run at once.
type person struct {
	t *testing.T
	m *model
}

func sit(t *testing.T, f *fake, width, height int) *person {
	t.Helper()
	o := Options{Backend: f, Changes: changesOf{fake: f}, Name: "fix", Getenv: os.Getenv, IsOfProject: true}
	o.Answer = func(ctx context.Context, name string, shown api.Ask, a api.Answer) error {
		return backend.AnswerShown(ctx, f, name, shown, a)
	}
	p := &person{t, newModel(newSource(t.Context(), o), o)}
	p.m.later = func(time.Duration) tea.Cmd { return nil } // refresh is called
	p.m.settle = 0
	p.m.second = func() tea.Cmd { return nil }
	p.tell(tea.WindowSizeMsg{Width: width, Height: height})
	p.refresh()
	return p
}

func (p *person) refresh() { p.run(p.m.source.list(p.m.watched())) }

func (p *person) tell(msg tea.Msg) {
	_, cmd := p.m.Update(msg)
	p.run(cmd)
}

// run runs a command, and what follows from it.
func (p *person) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil:
	case tea.BatchMsg:
		for _, c := range msg {
			p.run(c)
		}
	default:
		p.tell(msg)
	}
}

func (p *person) press(keys ...string) {
	for _, k := range keys {
		p.run(p.m.key(k, k))
	}
}

func (p *person) screen() []string {
	lines := strings.Split(ansi.Strip(p.m.draw()), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return lines
}

func (p *person) sees(text string) {
	p.t.Helper()
	if all := strings.Join(p.screen(), "\n"); !strings.Contains(all, text) {
		p.t.Errorf("the screen does not show %q:\n%s", text, all)
	}
}

func newFake() *fake {
	f := &fake{texts: map[vpath.Path]string{}}
	f.add("/.git/hooks/pre-commit", "#!/bin/sh\n", &review.RiskFlag{Risk: review.RunsOnHost, Reason: "git hook"})
	f.add("/a.txt", "one\ntwo\n", nil)
	f.add("/b.txt", "three\n", nil)
	return f
}

func TestScreen(t *testing.T) {
	p := sit(t, newFake(), 90, 10)
	want := []string{
		" review fix · 3 changes · 0 staged · running",
		"▾ [ ] Runs on the host: 1 file      │ .git/hooks/pre-commit  git hook",
		"  [ ] A .git/hooks/pre-commit  git …│ new file, mode 0644",
		"▾ [ ] Changes: 2 files              │ @@ -0,0 +1 @@",
		"  [ ] A a.txt                       │    1 +#!/bin/sh",
		"  [ ] A b.txt                       │",
		"                                    │",
		"                                    │",
		"                                    │",
		" Space stage · Tab diff · A apply · d discard · n refusals · ? help · q quit",
	}
	if diff := cmp.Diff(want, p.screen()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// On a terminal of the usual size, 80 columns and 24 lines, the screen says how to leave, and how
// to read on.
func TestTheUsualTerminalHasRoomForTheKeys(t *testing.T) {
	f, _, _ := withHunks()
	p := sit(t, f, 80, 24)
	p.sees("? help · q quit")
	p.press("G", "tab")
	p.sees("Space stage hunk")
	p.sees("? help · q quit")
	p.press("?")
	p.sees("↑ ↓ scroll · any other key: back")
	for range help {
		p.press("down")
	}
	p.sees(help[len(help)-1])
	for _, text := range help {
		if n := ansi.StringWidth(text); n > 80 {
			t.Errorf("%d columns: %q", n, text)
		}
	}
	p.m.height = len(help) + 4
	p.sees(" any key: back")
}

func TestALongMessageIsWrapped(t *testing.T) {
	p := sit(t, newFake(), 40, 8)
	p.m.read("Applied 0 changes", []string{strings.Repeat("word ", 60) + "end"})
	p.sees("↑ ↓ scroll")
	for range 10 {
		p.press("down")
	}
	p.sees("end")
}

func TestAppliesWhatIsStaged(t *testing.T) {
	f := newFake()
	p := sit(t, f, 100, 20)
	p.press("G", "space")
	p.sees("[x] A b.txt")
	p.press("A")
	p.sees("Apply 1 staged change? [y/N]")
	p.press("n")
	if len(f.applied) != 0 {
		t.Fatalf("applied %v without a yes", f.applied)
	}
	p.press("A", "y")
	if diff := cmp.Diff([][]vpath.Path{{"/b.txt"}}, f.applied); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	p.sees("Applied 1 change")
	p.sees("2 changes · 0 staged")
}

func TestWhatChangesAfterItWasStagedIsUnstaged(t *testing.T) {
	f := newFake()
	p := sit(t, f, 100, 20)
	p.press("*")
	p.sees("3 staged")
	f.texts["/b.txt"] = "other\n" // of the same size and mode
	p.refresh()
	p.sees("2 staged")
	p.sees("[!] A b.txt")
	p.sees("[x] A a.txt")
}

func TestNothingIsAppliedIfWhatIsStagedDiffers(t *testing.T) {
	f := newFake()
	p := sit(t, f, 100, 20)
	p.press("*", "A")
	p.sees("of which 1 can run on the host?")
	f.texts["/b.txt"] = "other\n"
	p.press("y")
	if len(f.applied) != 0 {
		t.Errorf("applied %v", f.applied)
	}
	p.sees("nothing was applied")
	p.sees("[!] A b.txt")
}

func TestAFileThatChangedSinceItWasSeenIsNotStaged(t *testing.T) {
	f := newFake()
	p := sit(t, f, 100, 20)
	p.press("G") // it is on the screen
	f.texts["/b.txt"] = "other\n"
	p.press("space")
	p.sees("0 staged")
	p.sees("not staged, because it changed after you saw it")
}

func TestDiscardAsksFirst(t *testing.T) {
	f := newFake()
	p := sit(t, f, 100, 20)
	p.press("G", "k", "k", "d") // the title of b.txt and another file
	p.sees("Discard 2 changes? The sandbox loses them. [y/N]")
	p.press("n", "G", "d")
	p.sees("Discard b.txt? The sandbox loses it. [y/N]")
	p.press("q")
	if f.discarded != nil {
		t.Fatalf("discarded %v without a yes", f.discarded)
	}
	p.press("d", "y")
	if diff := cmp.Diff([]vpath.Path{"/b.txt"}, f.discarded); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWhatApplyNeverTakesCannotBeStaged(t *testing.T) {
	f := newFake()
	f.files[2].LeftOut = "own entry"
	p := sit(t, f, 100, 20)
	p.press("*")
	p.sees("2 staged")
	p.press("G", "space")
	p.sees("apply never takes this: own entry")
}

// The screen is drawn from names and contents that a sandbox chose (ATTACKS 36).
func TestHostileTextsAreShownEscaped(t *testing.T) {
	f := newFake()
	f.add("/x\x1b[2J\x1b]0;t\x07\u202e\r", "a\x1b[31m\r\nb\u202ec\x9b1m\td\n"+strings.Repeat("z", 1<<19), nil)
	f.records = []audit.Record{{Seq: 1, Event: audit.NetworkDenied{Host: "h\x1b[2J", Reason: "r\x1b]0;x\x07"}}}
	p := sit(t, f, 100, 20)
	p.press("G", "n")
	p.press("v")
	p.press("right")
	for _, style := range []func(){func() {}, func() { p.press("v") }, func() { p.press("d") }} {
		style()
		// Of the control characters, only our own styles are left.
		for i, l := range strings.Split(p.m.draw(), "\n") {
			plain := ansi.Strip(l)
			if strings.ContainsAny(plain, "\x1b\x07\r\u202e\u009b\t") {
				t.Errorf("line %d has a control character: %q", i, l)
			}
			for _, bad := range []string{"\x1b[2J", "\x1b[31m\r", "\x1b]", "\x9b"} {
				if strings.Contains(l, bad) {
					t.Errorf("line %d acts on the terminal: %q", i, l)
				}
			}
		}
	}
	p.sees(`x\x1b[2J`)
	p.sees(`look up h\x1b[2J`)
}

func TestEverySizeIsDrawn(t *testing.T) {
	f := newFake()
	f.add("/\u6f22\u5b57\u6f22\u5b57.txt", strings.Repeat("\u6f22", 300)+"\n", nil)
	p := sit(t, f, 100, 20)
	p.press("G", "n")
	for width := range 130 {
		for _, height := range []int{0, 1, 2, 3, 7, 8, 24} {
			p.m.width, p.m.height = width, height
			for range 2 {
				p.m.split = !p.m.split
				p.m.inDiff = !p.m.inDiff
				lines := strings.Split(p.m.draw(), "\n")
				if len(lines) > max(1, height) {
					t.Fatalf("%d lines in %d×%d", len(lines), width, height)
				}
				for _, l := range lines {
					if n := ansi.StringWidth(l); n > width {
						t.Fatalf("%d columns in %d×%d: %q", n, width, height, l)
					}
				}
			}
		}
	}
}

func TestManyFilesAreDrawnAtOnce(t *testing.T) {
	f := &fake{texts: map[vpath.Path]string{}}
	for i := range 100_000 {
		f.add(vpath.Path(fmt.Sprintf("/f%06d", i)), "x\n", nil)
	}
	p := sit(t, f, 100, 20)
	p.press("G", "k", "space")
	p.sees("[x] A f099998")
	p.press("/", "9", "9", "9", "9", "7", "enter")
	p.sees("f099997")
}

func TestBeforeTakesAPatchBack(t *testing.T) {
	for _, texts := range [][2]string{{"", "a\nb\n"}, {"a\nb\n", ""}, {"a\nb\nc", "a\nc\n"}, {strings.Repeat("l\n", 50), strings.Repeat("l\n", 20) + "x\n" + strings.Repeat("l\n", 29)}} {
		hunks := textdiff.Hunks([]byte(texts[0]), []byte(texts[1]))
		if got, ok := before(texts[1], hunks); !ok || got != texts[0] {
			t.Errorf("of %q: got %q, %v; want %q", texts[1], got, ok, texts[0])
		}
		if _, ok := before("other\n", hunks); ok && texts[1] != "" {
			t.Errorf("a patch of %q was taken from another text", texts[1])
		}
	}
}

package reviewui

import (
	"fmt"
	"maps"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// The list is read again after a pause: the longer that takes, the longer the pause.
const (
	minPause   = 2 * time.Second
	pauseTimes = 10
)

// settleTime is longer than tmux waits before it resizes again (250 ms).
const settleTime = 400 * time.Millisecond

// What is staged is stamped again with each list up to so many files, and so many bytes of each.
// What is more is compared when it is applied.
const (
	maxWatched     = 100
	maxWatchedSize = 1 << 20
)

// mode is what the keys act on.
type mode int

const (
	browsing  mode = iota
	filtering      // a filter is typed
	asking         // a question is shown
	reading        // a text is shown: the help, or how an apply went
	answering      // the dialog of an ask is shown
)

// model is the screen.
type model struct {
	source *source
	o      Options

	width, height int
	dark          bool // the terminal's background

	files    []review.FileDiff
	groups   []review.Group
	sections []section
	rows     []row
	unfolded map[string]bool
	filter   string
	cursor   int // of rows
	top      int // the first row that is shown
	loaded   bool
	lost     error
	running  bool

	staged  map[vpath.Path]stamp
	parts   map[vpath.Path]chosenHunks // of the staged files of which not all hunks are staged
	seen    map[vpath.Path]stamp       // what was on the screen
	differs map[vpath.Path]bool        // changed after it was staged or seen

	path         vpath.Path // of the file that is shown, "" for none
	doc          *document
	docErr       error
	docTop, left int  // the first line and column that are shown
	hunk         int  // of the document, that the cursor of the diff is on
	inDiff       bool // the keys move in the diff
	split        bool

	mode     mode
	question string
	answer   func(*model) tea.Cmd // what yes does
	text     []string             // in reading
	textTop  int
	panel    panel
	asks     asks
	dialog   dialog // in answering
	status   string
	busy     bool // something is staged, applied or discarded

	later  func(time.Duration) tea.Cmd // sends a tick
	settle time.Duration
	second func() tea.Cmd // sends a dialogTick
}

func newModel(s *source, o Options) *model {
	return &model{
		source: s, o: o, dark: true, unfolded: map[string]bool{}, staged: map[vpath.Path]stamp{}, parts: map[vpath.Path]chosenHunks{},
		seen: map[vpath.Path]stamp{}, differs: map[vpath.Path]bool{}, panel: newPanel(), settle: settleTime,
		later:  func(d time.Duration) tea.Cmd { return tea.Tick(d, func(time.Time) tea.Msg { return tick{} }) },
		second: func() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return dialogTick{} }) },
	}
}

// Init starts to read.
func (m *model) Init() tea.Cmd {
	return tea.Batch(m.source.list(nil), tea.RequestBackgroundColor)
}

type tick struct{}

// repaint draws the whole screen again.
type repaint struct{}

// repaintLater repaints once the terminal has settled. Bubble Tea scrolls by margins of the screen,
// and those of the old size stay if the terminal, such as tmux, grows before the program knows it.
func (m *model) repaintLater() tea.Cmd {
	return tea.Tick(m.settle, func(time.Time) tea.Msg { return repaint{} })
}

// Update takes a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		return m, tea.Batch(tea.ClearScreen, m.repaintLater())
	case repaint:
		return m, tea.Sequence(tea.Raw(ansi.SetTopBottomMargins(0, 0)), tea.ClearScreen)
	case tea.BackgroundColorMsg:
		m.dark = msg.IsDark()
	case tea.KeyPressMsg:
		return m, m.key(msg.String(), msg.Text)
	case tea.PasteMsg:
		if m.mode == filtering {
			m.setFilter(m.filter + msg.Content)
		}
	default:
		return m, m.take(msg)
	}
	return m, nil
}

// take takes what a command of ours has found.
func (m *model) take(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tick:
		return m.source.list(m.watched())
	case listed:
		return m.takeList(msg)
	case wanted:
		if msg.path == m.path {
			return m.source.open(msg.path)
		}
	case opened:
		m.takeOpened(msg)
	case stamped:
		m.takeStamped(msg)
	case applied:
		m.busy = false
		m.takeApplied(msg)
		return m.source.list(nil)
	case discarded:
		m.busy = false
		if m.status = fmt.Sprintf("discarded %s", review.Count(msg.count, "change")); msg.err != nil {
			m.status = msg.err.Error()
		}
		return m.source.list(nil)
	case written:
		if msg.err != nil {
			m.status = msg.err.Error()
			return nil
		}
		return tea.ExecProcess(msg.cmd, func(err error) tea.Msg { return edited{msg.tool, err} })
	case edited:
		m.takeEdited(msg)
	default:
		return m.takeAsking(msg)
	}
	return nil
}

// watched are the paths to stamp again: the one that is shown, and what is staged, without what
// takes long to read.
func (m *model) watched() []vpath.Path {
	var paths []vpath.Path
	if len(m.staged) <= maxWatched {
		for path, st := range m.staged {
			if st.new.size <= maxWatchedSize {
				paths = append(paths, path)
			}
		}
	}
	if _, is := m.staged[m.path]; !is && m.seen[m.path].new.size <= maxWatchedSize && m.index(m.path) >= 0 {
		paths = append(paths, m.path)
	}
	slices.Sort(paths)
	return paths
}

// index is where a path is among the files, or -1.
func (m *model) index(path vpath.Path) int {
	return slices.IndexFunc(m.files, func(f review.FileDiff) bool { return f.Path == path })
}

func (m *model) takeList(l listed) tea.Cmd {
	again := m.later(max(minPause, pauseTimes*l.took))
	if l.err != nil {
		m.status, m.loaded = l.err.Error(), true
		return again
	}
	at, section := m.under()
	m.files, m.groups, m.lost, m.running, m.loaded = l.files, l.groups, l.lost, l.running, true
	m.panel.add(l.records)
	m.unstageChanged(l)
	m.arrange()
	m.moveTo(at, section)
	return tea.Batch(again, m.follow(l), m.followAsks(l))
}

// unstageChanged unstages what is no longer as it was staged, and marks it.
func (m *model) unstageChanged(l listed) {
	now := make(map[vpath.Path]face, len(l.files))
	for i := range l.files {
		now[l.files[i].Path] = faceOf(&l.files[i])
	}
	for path, st := range m.staged {
		has, is := now[path]
		again, stampedNow := l.stamps[path]
		if !is {
			m.forget(path)
		} else if has != st.face || stampedNow && again != st {
			m.unstage(path)
		}
	}
	for path := range m.differs {
		if _, is := now[path]; !is {
			delete(m.differs, path)
		}
	}
	maps.DeleteFunc(m.seen, func(path vpath.Path, _ stamp) bool { _, is := now[path]; return !is })
}

// unstage unstages a path because it differs.
func (m *model) unstage(path vpath.Path) {
	m.forget(path)
	m.differs[path] = true
	m.status = "changed after you staged it: " + m.nameOf(path)
}

// follow opens the file that is shown again if it has changed.
func (m *model) follow(l listed) tea.Cmd {
	if st, is := l.stamps[m.path]; is && st != m.seen[m.path] {
		return m.source.open(m.path)
	}
	return m.show()
}

// show opens the file under the cursor, unless it is shown.
func (m *model) show() tea.Cmd {
	f := m.current()
	switch {
	case f == nil:
		m.path, m.doc, m.docErr = "", nil, nil
		return nil
	case f.Path == m.path:
		return nil
	}
	m.path, m.doc, m.docErr, m.docTop, m.left, m.hunk = f.Path, nil, nil, 0, 0, 0
	path := f.Path
	// Whoever scrolls does not wait for each file.
	return tea.Tick(30*time.Millisecond, func(time.Time) tea.Msg { return wanted{path} })
}

// wanted asks for a file that was under the cursor a moment ago.
type wanted struct{ path vpath.Path }

func (m *model) takeOpened(o opened) {
	if o.path != m.path {
		return
	}
	m.docErr = o.err
	if o.err != nil {
		m.doc = nil
		return
	}
	if was, is := m.seen[o.path]; is && was != o.stamp && m.doc != nil {
		m.status = "changed while you look: " + m.nameOf(o.path)
	}
	m.doc, m.seen[o.path] = o.doc, o.stamp
	m.docTop = min(m.docTop, max(0, len(m.lines())-1))
}

// takeStamped stages what has the stamp that was seen, or was not looked at.
func (m *model) takeStamped(s stamped) {
	m.busy = false
	if s.err != nil {
		m.status = s.err.Error()
		return
	}
	for path, st := range s.stamps {
		if was, is := m.seen[path]; is && was != st {
			m.differs[path] = true
			m.status = "not staged, because it changed after you saw it: " + m.nameOf(path)
			delete(m.seen, path)
			continue
		}
		m.forget(path)
		m.staged[path] = st
		delete(m.differs, path)
	}
}

func (m *model) read(title string, lines []string) {
	m.mode, m.textTop = reading, 0
	m.text = append([]string{title, ""}, lines...)
}

// arrange lists the files again.
func (m *model) arrange() {
	m.sections = arrange(m.files, m.groups, m.unfolded)
	m.rows = rowsOf(m.sections, m.files, m.filter)
	m.clamp()
}

func (m *model) clamp() {
	m.cursor = max(0, min(m.cursor, len(m.rows)-1))
}

// current is the file under the cursor, nil for a title.
func (m *model) current() *review.FileDiff {
	if m.cursor >= len(m.rows) || m.rows[m.cursor].file < 0 {
		return nil
	}
	return &m.files[m.rows[m.cursor].file]
}

// under is what the cursor is on: a file, or the title of a section.
func (m *model) under() (path vpath.Path, title string) {
	if m.cursor >= len(m.rows) {
		return "", ""
	}
	if f := m.current(); f != nil {
		return f.Path, ""
	}
	s := &m.sections[m.rows[m.cursor].section]
	return "", sectionID(s)
}

// sectionID names a section, whatever its title counts.
func sectionID(s *section) string { return fmt.Sprint(s.kind, " ", s.name) }

// moveTo puts the cursor where it was before the list changed. At the start that is the first file.
func (m *model) moveTo(path vpath.Path, section string) {
	for i, r := range m.rows {
		if r.file >= 0 && path == "" && section == "" ||
			r.file >= 0 && m.files[r.file].Path == path ||
			r.file < 0 && section != "" && sectionID(&m.sections[r.section]) == section {
			m.cursor = i
			return
		}
	}
	m.clamp()
}

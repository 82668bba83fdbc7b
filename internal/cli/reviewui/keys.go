package reviewui

import (
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// help is what ? shows.
var help = []string{
	"↑ ↓ j k        move in the list, or in the diff",
	"PgUp PgDn      scroll the diff        ← → h l   scroll to the side",
	"Home End g G   first and last",
	"Tab Enter      between the list and the diff; Enter opens a group",
	"Esc            back to the list; forget the filter",
	"",
	"Space          stage the file, or on a title its section; again: unstage",
	"               in the diff: stage the marked hunk",
	"[  ]           in the diff: previous and next hunk",
	"s              stage the section of the file",
	"*  -           stage all · unstage all",
	"A              apply what is staged",
	"d              discard the file, or on a title its section",
	"",
	"v              unified or side by side",
	"e              open copies of both sides in $DIFFTOOL,",
	"               or of the file in $VISUAL or $EDITOR",
	"n              what waits, refusals and network",
	"a              answer what the sandbox asks, the oldest first",
	"/              show the files with a text in their names",
	"r              look again now",
	"?              this help            q Ctrl-C    leave",
	"",
	"[x] staged   [~] a part is staged   [!] changed after you staged or saw it",
	"A file that you stage without opening it is staged as it is at that moment.",
	"Only what was staged is applied. What is not applied stays in the sandbox.",
}

// key does what a key says.
func (m *model) key(key, text string) tea.Cmd {
	if key == "ctrl+c" {
		return tea.Quit
	}
	switch m.mode {
	case filtering:
		return m.filterKey(key, text)
	case asking:
		m.mode = browsing
		if key == "y" || key == "Y" {
			return m.answer(m)
		}
		m.status = "nothing was done"
		return nil
	case answering:
		return m.dialogKey(key, text)
	case reading:
		m.readKey(key)
		return nil
	}
	m.status = ""
	if m.moveKey(key) {
		return m.show()
	}
	return m.actKey(key)
}

func (m *model) readKey(key string) {
	switch key {
	case "down", "j", "pgdown", "space":
		m.textTop = max(0, min(m.textTop+1, len(m.wrapped())-m.height+2))
	case "up", "k", "pgup":
		m.textTop = max(0, m.textTop-1)
	default:
		m.mode = browsing
	}
}

func (m *model) filterKey(key, text string) tea.Cmd {
	switch key {
	case "enter":
		m.mode = browsing
	case "esc":
		m.mode = browsing
		m.setFilter("")
	case "backspace":
		if r := []rune(m.filter); len(r) > 0 {
			m.setFilter(string(r[:len(r)-1]))
		}
	default:
		m.setFilter(m.filter + text)
	}
	return m.show()
}

// setFilter shows the files that a text matches.
func (m *model) setFilter(text string) {
	at, title := m.under()
	m.filter = printable(text)
	m.arrange()
	m.moveTo(at, title)
	if m.current() == nil && m.filter != "" {
		m.moveTo("", "")
	}
}

// moveKey moves in the list or in the diff, and reports whether the key does that.
func (m *model) moveKey(key string) bool {
	page := max(1, m.bodyHeight()-1)
	step := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "home": -1 << 30, "g": -1 << 30, "end": 1 << 30, "G": 1 << 30,
	}[key]
	scroll := map[string]int{"pgup": -page, "ctrl+b": -page, "pgdown": page, "ctrl+f": page, "ctrl+u": -page / 2, "ctrl+d": page / 2, "K": -1, "J": 1}[key]
	aside := map[string]int{"left": -8, "h": -8, "right": 8, "l": 8}[key]
	switch {
	case step != 0 && !m.inDiff:
		m.cursor += step
		m.clamp()
	case step != 0 || scroll != 0:
		m.docTop = max(0, min(m.docTop+step+scroll, len(m.lines())-m.bodyHeight()+2))
	case m.inDiff && key == "]":
		m.moveHunk(1)
	case m.inDiff && key == "[":
		m.moveHunk(-1)
	case aside != 0:
		m.left = max(0, min(m.left+aside, maxLine))
	default:
		return false
	}
	return true
}

func (m *model) actKey(key string) tea.Cmd {
	switch key {
	case "q":
		return tea.Quit
	case "?":
		m.read("Keys", help)
	case "tab", "enter":
		m.enter(key)
	case "esc":
		if m.inDiff {
			m.inDiff = false
		} else if m.filter != "" {
			m.setFilter("")
		}
		return m.show()
	case "v":
		m.split, m.docTop = !m.split, 0
	case "a":
		return m.openDialog()
	case "n":
		m.panel.shown = !m.panel.shown
	case "/":
		m.mode, m.inDiff = filtering, false
	case "r":
		m.status = "looking again"
		return m.source.list(m.watched())
	case "e":
		return m.edit()
	default:
		return m.changeKey(key)
	}
	return nil
}

// enter goes to the diff or back, or opens and closes a group.
func (m *model) enter(key string) {
	if m.current() == nil && key == "enter" && !m.inDiff && m.cursor < len(m.rows) {
		if s := &m.sections[m.rows[m.cursor].section]; s.kind == grouped {
			m.unfolded[s.name] = !m.unfolded[s.name]
			m.arrange()
		}
		return
	}
	m.inDiff = !m.inDiff && m.current() != nil
}

// changeKey stages, applies and discards.
func (m *model) changeKey(key string) tea.Cmd {
	if m.busy {
		m.status = "wait until this is done"
		return nil
	}
	switch key {
	case "space":
		if m.inDiff && m.toggleHunk() {
			return nil
		}
		return m.toggle(m.chosen())
	case "s":
		if m.cursor < len(m.rows) {
			return m.toggle(m.rowsFiles(m.rows[m.cursor].section))
		}
	case "*":
		return m.stage(m.allFiles())
	case "-":
		clear(m.staged)
		clear(m.parts)
	case "A":
		m.askApply()
	case "d":
		m.askDiscard()
	}
	return nil
}

// chosen are the files that the cursor is on: one, or those of a title.
func (m *model) chosen() []int {
	if m.cursor >= len(m.rows) {
		return nil
	}
	if r := m.rows[m.cursor]; r.file >= 0 {
		return []int{r.file}
	}
	return m.rowsFiles(m.rows[m.cursor].section)
}

// rowsFiles are the files of a section, as far as the filter shows them.
func (m *model) rowsFiles(section int) []int {
	if m.filter == "" {
		return m.sections[section].files
	}
	var files []int
	for _, r := range m.rows {
		if r.section == section && r.file >= 0 {
			files = append(files, r.file)
		}
	}
	return files
}

// allFiles are those that the filter shows.
func (m *model) allFiles() []int {
	var files []int
	for i := range m.sections {
		files = append(files, m.rowsFiles(i)...)
	}
	return files
}

// toggle stages files, or unstages them if all are staged.
func (m *model) toggle(files []int) tea.Cmd {
	takes := slices.DeleteFunc(slices.Clone(files), func(i int) bool { return m.files[i].LeftOut != "" })
	if len(takes) == 0 {
		if len(files) > 0 {
			m.status = "apply never takes this: " + m.files[files[0]].LeftOut
		}
		return nil
	}
	for _, i := range takes {
		if !m.isWhole(m.files[i].Path) {
			return m.stage(takes)
		}
	}
	for _, i := range takes {
		for _, path := range withPartner(&m.files[i]) {
			m.forget(path)
		}
	}
	return nil
}

// stage stages files once they are stamped.
func (m *model) stage(files []int) tea.Cmd {
	paths := m.pathsOf(files, func(f *review.FileDiff) bool {
		return f.LeftOut == "" && !m.isWhole(f.Path)
	})
	if len(paths) == 0 {
		return nil
	}
	m.busy = true
	return m.source.stamp(paths)
}

// pathsOf are the paths of files, each with its partner.
func (m *model) pathsOf(files []int, takes func(*review.FileDiff) bool) []vpath.Path {
	var paths []vpath.Path
	for _, i := range files {
		if f := &m.files[i]; takes(f) {
			paths = append(paths, withPartner(f)...)
		}
	}
	return paths
}

func (m *model) ask(question string, yes func(*model) tea.Cmd) {
	m.mode, m.question, m.answer = asking, question, yes
}

// askApply asks whether what is staged is to be applied.
func (m *model) askApply() {
	if len(m.staged) == 0 {
		m.status = "nothing is staged: Space stages a file, * stages all"
		return
	}
	runs := 0
	for i := range m.files {
		f := &m.files[i]
		if _, is := m.staged[f.Path]; is && f.Mark != nil && f.Mark.Risk == review.RunsOnHost {
			runs++
		}
	}
	question := fmt.Sprintf("Apply %s?", review.Count(len(m.staged), "staged change"))
	if runs > 0 {
		question = fmt.Sprintf("Apply %s, of which %d can run on the host?", review.Count(len(m.staged), "staged change"), runs)
	}
	m.ask(question, func(m *model) tea.Cmd {
		m.busy, m.status = true, "applying"
		return m.source.apply(m.staged, m.parts)
	})
}

// askDiscard asks whether what the cursor is on is to be thrown away.
func (m *model) askDiscard() {
	files := m.chosen()
	paths := m.pathsOf(files, func(*review.FileDiff) bool { return true })
	if len(paths) == 0 {
		return
	}
	what, lost := review.Count(len(files), "change"), "them"
	if len(files) == 1 {
		what, lost = m.nameOf(m.files[files[0]].Path), "it"
	}
	m.ask("Discard "+what+"? The sandbox loses "+lost+".", func(m *model) tea.Cmd {
		m.busy, m.status = true, "discarding"
		return m.source.discard(paths)
	})
}

package chaos_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What the files are: so many, each of so many equal lines that name a version.
const (
	fileCount    = 12
	linesOfAFile = 400
)

func nameOf(i int) string { return fmt.Sprint("f", i) }

func contentOf(version int) string {
	return strings.Repeat(fmt.Sprintf("v%08d\n", version), linesOfAFile)
}

// versionOf reads a file. A half written one is of none.
func versionOf(content string) (int, bool) {
	line, _, _ := strings.Cut(content, "\n")
	version, err := strconv.Atoi(strings.TrimLeft(strings.TrimPrefix(line, "v"), "0") + "")
	if line == "v00000000" {
		version, err = 0, nil
	}
	return version, err == nil && content == contentOf(version)
}

// span is between which versions a file is.
type span struct{ low, high int }

// model says what the files may be. Versions only grow, but for what is discarded.
type model struct {
	next         int // the last version that a command may have written
	view, source [fileCount]span
	outside      int  // the version of a file that only we write
	halfApplied  bool // an apply may have been killed, and nothing has cleared up after it
}

func newModel() *model { return &model{} }

// writer is a script that writes versions from after first to last, one file after
// the other, and says which it has synced.
func writer(first, last int) string {
	return fmt.Sprintf(`n=%d; while [ $n -lt %d ]; do
n=$((n+1)); f=f$((n %% %d))
yes v$(printf %%08d $n) | head -n %d > .new && sync .new && mv .new $f && echo $n
done`, first, last, fileCount, linesOfAFile)
}

// versionsOfAWrite is how many versions one command writes at most.
const versionsOfAWrite = 60

// written takes what a writer has said: what it synced is there.
func (m *model) written(first int, said string) {
	m.next = first + versionsOfAWrite
	for i := range m.view {
		m.view[i].high = m.next
	}
	for line := range strings.FieldsSeq(said) {
		if n, err := strconv.Atoi(line); err == nil && n > first && n <= m.next {
			m.view[n%fileCount].low = max(m.view[n%fileCount].low, n)
		}
	}
}

// write has a command write while something is struck.
func (w *world) write() {
	first := w.model.next
	_, said := w.strike(600*time.Millisecond, w.script(writer(first, first+versionsOfAWrite))...)
	w.model.written(first, said)
}

// mayReachSource: what the view has may be in the source, too.
func (w *world) mayReachSource() {
	for i := range w.model.source {
		w.model.source[i].high = max(w.model.source[i].high, w.model.view[i].high)
	}
}

// apply is struck; undisturbed it then brings everything over.
func (w *world) apply() {
	w.mayReachSource()
	w.strike(60*time.Millisecond, w.about("apply")...)
	w.model.halfApplied = true
	w.settle()
	w.check()
	w.mayReachSource()
	w.must(w.about("apply")...)
	w.model.halfApplied = false
	w.check()
	for i := range w.model.source {
		if w.model.source[i] != w.model.view[i] {
			w.fatal("%s: after apply it is %v in the source and %v in the view", nameOf(i), w.model.source[i], w.model.view[i])
		}
	}
}

// discard is struck: each file is what it was or what the source has.
func (w *world) discard() {
	for i, source := range w.model.source {
		w.model.view[i].low = min(w.model.view[i].low, source.low)
	}
	w.strike(60*time.Millisecond, w.about("discard")...)
	w.settle()
	w.check()
	w.must(w.about("discard")...)
	w.model.halfApplied = false
	w.model.view = w.model.source
}

// applyWhileWriting applies to the source what a command is writing.
func (w *world) applyWhileWriting() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(100 * time.Millisecond)
		cmd, _, _ := w.command(w.t.Context(), w.about("apply")...)
		_ = cmd.Run() // it is struck, or refused because the sandbox is busy
	}()
	w.write()
	<-done
	w.model.halfApplied = true
	w.mayReachSource()
}

// begin strikes while the sandbox starts, and while another is made and removed.
func (w *world) begin() {
	w.strike(60*time.Millisecond, "exec", w.s.Name, "--", "true")
	w.settle()
	w.strike(80*time.Millisecond, "run", "--preset", "full-access", "--name", "another", "--", "true")
	w.settle()
	w.strike(40*time.Millisecond, "rm", "--force", "another")
	w.settle()
	w.must("rm", "--force", "another")
}

// check compares the view and the source with what they may be, and changes a file
// of the source's own, which nobody may lose.
func (w *world) check() {
	said := w.must(w.script(`for f in f*; do echo "== $f"; cat "$f"; done`)...)
	seen := 0
	for part := range strings.SplitSeq(said, "== f") {
		number, content, ok := strings.Cut(part, "\n")
		i, err := strconv.Atoi(number)
		if !ok || err != nil || i >= fileCount {
			continue
		}
		seen++
		w.narrow("the view", &w.model.view[i], i, content)
	}
	if seen != fileCount {
		w.fatal("the view has %d of %d files", seen, fileCount)
	}
	w.checkSource()
	for i := range w.model.source {
		if w.kept && w.model.source[i] != w.model.view[i] { // a command has just ended, undisturbed
			w.fatal("%s: it is kept, and is %v in the source and %v in the view", nameOf(i), w.model.source[i], w.model.view[i])
		}
	}
}

// narrow checks a file and takes down what it is, now that nothing runs.
func (w *world) narrow(where string, may *span, i int, content string) {
	w.t.Helper()
	version, whole := versionOf(content)
	if !whole {
		w.fatal("%s in %s is not whole: %d bytes, %.40q", nameOf(i), where, len(content), content)
	}
	if version < may.low || version > may.high || version != 0 && version%fileCount != i {
		w.fatal("%s in %s has version %d, want %d to %d", nameOf(i), where, version, may.low, may.high)
	}
	*may = span{version, version}
}

// sourceDir is the source, or the server's copy of it.
func (w *world) sourceDir() string {
	if w.server == nil {
		return w.files
	}
	return filepath.Join(w.s.Home, "codebases", w.ids.Served.CodebaseID, "files")
}

func (w *world) checkSource() {
	if w.server != nil || w.kept { // changes are carried over without an apply
		w.mayReachSource()
	}
	dir := w.sourceDir()
	for i := range fileCount {
		content, err := os.ReadFile(filepath.Join(dir, nameOf(i)))
		if err != nil {
			w.fatal("%s in the source: %v", nameOf(i), err)
		}
		w.narrow("the source", &w.model.source[i], i, string(content))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.fatal("the source: %v", err)
	}
	for _, e := range entries {
		name := e.Name()
		if (w.model.halfApplied || w.kept) && w.server == nil && strings.HasPrefix(name, ".agentfense-") {
			continue // the next apply or discard removes it
		}
		if !strings.HasPrefix(name, "f") && name != ".new" && name != "outside" {
			w.fatal("the source has %q, which nobody made", name)
		}
	}
	w.writeOutside()
}

// writeOutside checks and renews the file of the source that only we write.
func (w *world) writeOutside() {
	if w.server != nil {
		return // the server's copy is its own
	}
	path := filepath.Join(w.files, "outside")
	if w.model.outside > 0 {
		if got, err := os.ReadFile(path); err != nil || string(got) != contentOf(w.model.outside) {
			w.fatal("the file that was written outside is lost: %.40q, %v", got, err)
		}
	}
	w.model.outside++
	if err := os.WriteFile(path, []byte(contentOf(w.model.outside)), 0o644); err != nil {
		w.fatal("the file outside: %v", err)
	}
	w.s.Own(path)
}

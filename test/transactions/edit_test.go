package transactions_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// edit is an operation of a person or of a program in a sandbox.
type edit struct {
	what string // "put", "remove", "rename", "link" or "chmod"
	path string
	to   string // of a rename or link
	node node   // what is at path afterwards
}

// drawEdit draws an edit that is possible in t.
func (w *world) drawEdit(rt *rapid.T, t tree) (edit, bool) {
	return w.drawEditAt(rt, t, w.drawName(rt, "path"))
}

// drawEditAt draws an edit at p.
func (w *world) drawEditAt(rt *rapid.T, t tree, p string) (edit, bool) {
	if !t.isDir(parent(p)) {
		return edit{}, false
	}
	now, there := t[p]
	if !there {
		return edit{what: "put", path: p, node: w.drawNode(rt, p == "d" || p == odd)}, true
	}
	does := []string{"remove", "rename", "chmod"}
	switch now.kind {
	case 'f':
		does = append(does, "edit", "edit", "edit", "edit", "binary", "link", "link")
	case 'l':
		does = []string{"remove", "rename"}
	}
	e := edit{what: rapid.SampledFrom(does).Draw(rt, "operation"), path: p, node: now}
	switch e.what {
	case "chmod":
		e.node.mode = drawMode(rt, now)
	case "edit":
		e.what, e.node.text = "put", w.drawText(rt, now.text)
	case "binary":
		e.what, e.node.text = "put", w.binary()
	case "link":
		e.to = w.drawName(rt, "to")
		if _, taken := t[e.to]; taken || !t.isDir(parent(e.to)) {
			return edit{}, false
		}
	case "rename":
		e.to = w.drawName(rt, "to")
		at, taken := t[e.to]
		if e.to == p || isBelow(e.to, p) || !t.isDir(parent(e.to)) || taken && (now.isDir() || at.isDir()) || now.isDir() && strings.Contains(e.to, "/") {
			return edit{}, false
		}
	}
	return e, true
}

// drawMode draws another mode for an entry.
func drawMode(rt *rapid.T, n node) os.FileMode {
	modes := []os.FileMode{0o644, 0o611, 0o600, 0o444}
	if n.isDir() {
		modes = []os.FileMode{0o755, 0o711, 0o700}
	}
	return rapid.SampledFrom(slices.DeleteFunc(modes, func(m os.FileMode) bool { return m == n.mode })).Draw(rt, "mode")
}

// drawNode draws an entry to make, at some names mostly a directory.
func (w *world) drawNode(rt *rapid.T, mostlyDir bool) node {
	kinds := []string{"file", "file", "same", "binary", "directory", "link"}
	if mostlyDir {
		kinds = []string{"directory", "directory", "directory", "file", "link"}
	}
	switch rapid.SampledFrom(kinds).Draw(rt, "kind") {
	case "same":
		return file("the same\n")
	case "binary":
		return file(w.binary())
	case "directory":
		return dir()
	case "link":
		w.wrote++
		return link(fmt.Sprint("to ", w.wrote))
	}
	return file(w.drawText(rt, lines))
}

func (w *world) binary() string {
	w.wrote++
	return fmt.Sprintf("\x00%d", w.wrote)
}

// drawText changes a line or two of a text.
func (w *world) drawText(rt *rapid.T, text string) string {
	list := strings.SplitAfter(text, "\n")
	for range rapid.IntRange(1, 2).Draw(rt, "lines") {
		at := rapid.IntRange(0, max(len(list)-1, 0)).Draw(rt, "line")
		w.wrote++
		line := fmt.Sprintf("text %d\n", w.wrote)
		switch what := rapid.SampledFrom([]string{"change", "change", "insert", "delete", "the same"}).Draw(rt, "edit"); {
		case what == "insert":
			list = slices.Insert(list, at, line)
		case what == "delete" && len(list) > 2:
			list = slices.Delete(list, at, at+1)
		case what == "the same":
			list[at] = "the same\n"
		default:
			list[at] = line
		}
	}
	return strings.Join(list, "")
}

// editSource edits the source, as a person does.
func (w *world) editSource(rt *rapid.T) {
	e, ok := w.drawEdit(rt, w.src)
	if !ok {
		return
	}
	w.doSource(rt, e)
}

// linkSource gives a file of the source a second name.
func (w *world) linkSource(rt *rapid.T) {
	of, to := w.drawName(rt, "file"), w.drawName(rt, "to")
	if _, taken := w.src[to]; !taken && w.src[of].isFile() && w.src.isDir(parent(to)) {
		w.doSource(rt, edit{what: "link", path: of, to: to})
	}
}

// doSource does an edit in the source and in its model.
func (w *world) doSource(rt *rapid.T, e edit) {
	at := w.host(e.path)
	switch e.what {
	case "put":
		w.must(rt, place(at, e.node))
		w.src[e.path] = e.node
	case "chmod":
		w.must(rt, os.Chmod(at, e.node.mode))
		for _, p := range w.src.links(e.path) {
			n := w.src[p]
			n.mode = e.node.mode
			w.src[p] = n
		}
	case "link":
		w.must(rt, os.Link(at, w.host(e.to)))
		w.src[e.to] = w.src[e.path]
		w.did["source: linked"]++
	case "remove":
		w.must(rt, os.RemoveAll(at))
		w.src.removeAll(e.path)
	case "rename":
		w.must(rt, os.Rename(at, w.host(e.to)))
		if slices.Contains(w.src.links(e.path), e.to) {
			return // rename(2) leaves two names of one file
		}
		moved := tree{}
		for p, n := range w.src {
			if p == e.path || isBelow(p, e.path) {
				moved[e.to+p[len(e.path):]] = n
			}
		}
		w.src.removeAll(e.path)
		maps.Copy(w.src, moved)
	}
	w.identify(rt)
}

// editInside edits in a sandbox, once or several times.
func (w *world) editInside(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	if len(b.narrow) > 0 || rapid.IntRange(0, 15).Draw(rt, "by a program") == 0 {
		w.editThrough(rt, b, func() (edit, bool) { return w.drawEdit(rt, b.view(w.src)) })
		return
	}
	w.editBox(rt, b, sb)
}

func (w *world) editBox(rt *rapid.T, b *box, sb *record.Sandbox) {
	w.inside(rt, sb, func(s *layer.Stack) {
		for range rapid.IntRange(1, 4).Draw(rt, "edits") {
			if e, ok := w.drawEdit(rt, b.view(w.src)); ok {
				w.must(rt, w.do(b, s, e))
			}
		}
	})
}

// doInModel does an edit that is no removal in the model of a sandbox.
func (w *world) doInModel(b *box, e edit) {
	switch e.what {
	case "chmod":
		b.chmod(w.src, e.path, e.node)
	case "link":
		w.wrote++
		b.link(w.src, e.path, e.to, w.wrote)
		w.did["inside: linked"]++
	case "rename":
		b.rename(w.src, e.path, e.to)
	case "put":
		if _, exists := b.at(w.src, e.path); !exists {
			b.put(w.src, e.path, e.node)
			return
		}
		if len(b.names(e.path)) > 1 {
			w.did["inside: wrote to a linked file"]++
		}
		b.write(w.src, e.path, e.node.text)
	}
}

// do does an edit in a sandbox and in its model.
func (w *world) do(b *box, s *layer.Stack, e edit) error {
	if e.what == "remove" {
		return w.removeInside(b, s, e.path)
	}
	p := pathOf(e.path)
	_, exists := b.at(w.src, e.path)
	w.doInModel(b, e)
	switch e.what {
	case "chmod":
		mode := uint32(e.node.mode)
		_, err := s.SetAttr(p, layer.SetAttr{Mode: &mode})
		return err
	case "link":
		_, err := s.Link(p, pathOf(e.to))
		return err
	case "rename":
		_, err := s.Rename(p, pathOf(e.to), layer.RenameOptions{})
		return err
	}
	if exists {
		return write(s, p, e.node, true)
	}
	switch e.node.kind {
	case 'd':
		_, err := s.Mkdir(p, uint32(e.node.mode))
		return err
	case 'l':
		_, err := s.Symlink(e.node.text, p)
		return err
	}
	return write(s, p, e.node, false)
}

// removeInside is rm -r.
func (w *world) removeInside(b *box, s *layer.Stack, p string) error {
	view := b.view(w.src)
	for _, q := range childrenFirst(view) {
		if q != p && !isBelow(q, p) {
			continue
		}
		b.remove(w.src, q)
		var err error
		if view[q].isDir() {
			err = s.Rmdir(pathOf(q), nil)
		} else {
			_, err = s.Unlink(pathOf(q), false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write gives a file its content.
func write(s *layer.Stack, p vpath.Path, n node, exists bool) (err error) {
	var f *layer.File
	if exists {
		f, _, err = s.Open(p, true)
	} else {
		f, _, err = s.Create(p, uint32(n.mode))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := s.SetAttr(p, layer.SetAttr{Size: new(int64)}); err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(n.text), 0)
	return err
}

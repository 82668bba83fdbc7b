package merge

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// history is the frozen layers of which a state was made, the nearest first.
type history struct {
	names   []string
	parents map[string][]string
}

// historyOf follows the layers of which the head or the layer in dir was made, and then those with
// which the sandbox began.
func historyOf(sb *record.Sandbox, dir string, origin *snapshot.Origin) (*history, error) {
	h := &history{parents: map[string][]string{}}
	if err := h.follow(sb, dir); err != nil {
		return nil, err
	}
	if origin == nil || origin.Layer == "" {
		return h, nil
	}
	// A sandbox whose layers were merged into one does not lead to the fork any more.
	return h, h.add(sb, []string{origin.Layer})
}

func (h *history) follow(sb *record.Sandbox, dir string) error {
	if dir == "" {
		return nil
	}
	if inStore := filepath.Dir(dir) == sb.Home.LayerStore(); inStore {
		return h.add(sb, []string{filepath.Base(dir)})
	}
	l, err := layer.LineageOf(dir)
	if err != nil {
		return err
	}
	return h.add(sb, append(l.Parents, l.Earlier...))
}

// add adds layers and those of which they were made, breadth first.
func (h *history) add(sb *record.Sandbox, pending []string) error {
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		dir := filepath.Join(sb.Home.LayerStore(), name)
		if _, seen := h.parents[name]; seen || !isThere(dir) {
			continue
		}
		l, err := layer.LineageOf(dir)
		if err != nil {
			return err
		}
		h.parents[name] = append(l.Parents, l.Earlier...)
		h.names = append(h.names, name)
		pending = append(pending, h.parents[name]...)
	}
	return nil
}

func isThere(dir string) bool {
	_, err := os.Lstat(dir)
	return err == nil
}

// leadsTo reports whether the layer to is one of those of which the layer from was made.
func (h *history) leadsTo(from, to string) bool {
	pending, seen := slices.Clone(h.parents[from]), map[string]bool{}
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		if name == to {
			return true
		}
		if !seen[name] {
			seen[name] = true
			pending = append(pending, h.parents[name]...)
		}
	}
	return false
}

// commonLayer returns the directory of the nearest layer of which both states were made; "" if
// there is none: then both began with the source.
func commonLayer(o *Options, theirs string) (string, error) {
	ourList, err := snapshot.Read(o.Into)
	if err != nil {
		return "", err
	}
	theirList, err := snapshot.Read(o.From)
	if err != nil {
		return "", err
	}
	ours, err := historyOf(o.Into, o.Into.LayersDir(), ourList.Origin)
	if err != nil {
		return "", err
	}
	other, err := historyOf(o.From, theirs, theirList.Origin)
	if err != nil {
		return "", err
	}
	name := nearest(ours, other)
	if name == "" {
		name = forkPoint(o, ourList.Origin, theirList.Origin)
	}
	if dir := filepath.Join(o.Into.Home.LayerStore(), name); name != "" && isThere(dir) {
		return dir, nil
	}
	return "", nil
}

// nearest returns the first layer in theirs that ours has too, and that no other such layer was
// made of.
func nearest(ours, theirs *history) string {
	var common []string
	for _, name := range theirs.names {
		if _, has := ours.parents[name]; has {
			common = append(common, name)
		}
	}
	for _, name := range common {
		if !slices.ContainsFunc(common, func(other string) bool { return theirs.leadsTo(other, name) }) {
			return name
		}
	}
	return ""
}

// forkPoint returns the layer with which one of the sandboxes began as a fork of the other one,
// which has merged its layers into one since.
func forkPoint(o *Options, ours, theirs *snapshot.Origin) string {
	switch {
	case theirs != nil && theirs.ID == o.Into.ID():
		return theirs.Layer
	case ours != nil && ours.ID == o.From.ID():
		return ours.Layer
	}
	return ""
}

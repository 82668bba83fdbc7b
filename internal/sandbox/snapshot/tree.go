package snapshot

import (
	"path/filepath"

	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Node is a snapshot in the tree of a sandbox's states.
type Node struct {
	Snapshot
	// Parent is the number of the snapshot of which the state was made, 0 for the source.
	Parent int
	// Depth is how many snapshots are above it in the tree.
	Depth int
}

// Tree is what a sandbox has of snapshots, as a tree by what was made of what in the workspace.
type Tree struct {
	Origin *Origin
	// Nodes have parents before children.
	Nodes []Node
	// Present is the number of the snapshot of which the present state was made, 0 for the source.
	Present int
}

// TreeOf reads the snapshots of a sandbox. Errors: Precondition for a damaged list.
func TreeOf(sb *record.Sandbox) (Tree, error) {
	l, err := Read(sb)
	if err != nil {
		return Tree{}, err
	}
	t := Tree{Origin: l.Origin}
	first := map[string]int{} // the first snapshot of each layer
	for _, s := range l.Snapshots {
		if name := s.Parts[""].Layer; first[name] == 0 {
			first[name] = s.Number
		}
	}
	parent := map[int]int{}
	for _, s := range l.Snapshots {
		name := s.Parts[""].Layer
		if first[name] != s.Number {
			parent[s.Number] = first[name] // the same state again
		} else if name != "" {
			parent[s.Number] = nearest(sb, name, first)
		}
	}
	t.add(l.Snapshots, parent, 0, 0)
	below, err := layer.Below(sb.LayersDir())
	if err != nil {
		return t, err
	}
	t.Present = first[below]
	if t.Present == 0 && below != "" {
		t.Present = nearest(sb, below, first)
	}
	return t, nil
}

// nearest returns the first snapshot of the nearest layer below the named one that has any.
func nearest(sb *record.Sandbox, name string, first map[string]int) int {
	names, err := layer.Chain(layerDir(sb, name), sb.Home.LayerStore())
	if err != nil {
		return 0 // a layer is missing: whoever opens the snapshot is told
	}
	for _, below := range append(names, "") {
		if first[below] != 0 {
			return first[below]
		}
	}
	return 0
}

// add adds the snapshots with a parent, and below each those with it as parent.
func (t *Tree) add(all []Snapshot, parent map[int]int, of, depth int) {
	for _, s := range all {
		if parent[s.Number] != of {
			continue
		}
		t.Nodes = append(t.Nodes, Node{Snapshot: s, Parent: of, Depth: depth})
		t.add(all, parent, s.Number, depth+1)
	}
}

// LayerDir returns the directory that has a state of the workspace, or of a mount: that of a frozen
// layer, or "" for the source without changes. ok is false if the snapshot does not have the mount.
func (s *Snapshot) LayerDir(sb *record.Sandbox, mount string) (dir string, ok bool) {
	part, ok := s.Parts[mount]
	if part.Layer == "" {
		return "", ok
	}
	return layerDir(sb, part.Layer), ok
}

func layerDir(sb *record.Sandbox, name string) string {
	return filepath.Join(sb.Home.LayerStore(), name)
}

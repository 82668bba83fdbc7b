package wireconv

import (
	"strings"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Keep is what the end of a command did with the changes that rules with apply: keep match. The
// lists may be cut; the counts are their lengths.
type Keep struct {
	Kept, NotKept           []KeptPath
	KeptCount, NotKeptCount int64
	Note                    string // why nothing was tried, or not everything
}

// KeptPath is a path of a mount that was applied, or waits.
type KeptPath struct {
	Mount  string
	Path   vpath.Path
	Keys   []string
	Reason string // why it waits
}

func encodeKeep(k *Keep) *sandboxv1.KeepResult {
	if k == nil {
		return nil
	}
	return &sandboxv1.KeepResult{
		Kept: encodeKept(k.Kept), KeptCount: k.KeptCount, NotKept: encodeKept(k.NotKept), NotKeptCount: k.NotKeptCount, Note: k.Note,
	}
}

func encodeKept(list []KeptPath) []*sandboxv1.KeptPath {
	var out []*sandboxv1.KeptPath
	for _, p := range list {
		out = append(out, &sandboxv1.KeptPath{Mount: p.Mount, Path: p.Path.Text(), Keys: p.Keys, Reason: strings.ToValidUTF8(p.Reason, "\uFFFD")})
	}
	return out
}

// decodeKeep is the reverse of encodeKeep. It drops paths that are none, and escapes texts.
func decodeKeep(m *sandboxv1.KeepResult) *Keep {
	if m == nil {
		return nil
	}
	return &Keep{
		Kept: decodeKept(m.Kept), KeptCount: m.KeptCount, NotKept: decodeKept(m.NotKept), NotKeptCount: m.NotKeptCount, Note: vpath.EscapeMessage(m.Note),
	}
}

func decodeKept(sent []*sandboxv1.KeptPath) []KeptPath {
	var list []KeptPath
	for _, p := range sent {
		path, err := vpath.ParseText(p.Path)
		if err != nil {
			continue
		}
		list = append(list, KeptPath{Mount: vpath.Escape(p.Mount), Path: path, Keys: escapedAll(p.Keys), Reason: vpath.EscapeMessage(p.Reason)})
	}
	return list
}

func escapedAll(texts []string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, vpath.Escape(text))
	}
	return out
}

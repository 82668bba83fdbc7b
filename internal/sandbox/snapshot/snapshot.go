// Package snapshot keeps states of a sandbox to which it can go back, and makes forks.
//
// A snapshot refers to a frozen layer of the workspace and of each mount with a delta. The
// list of a sandbox's snapshots is a file in its directory; the layers are in the home's
// store, which sandboxes and snapshots share. A layer stays as long as a sandbox or a
// snapshot refers to it, or to one above it.
//
// It promises that a crash at any point loses no state and leaves no reference to a layer
// that is not there. It does not freeze the delta of a running sandbox: its supervisor does.
//
// Lock order: a sandbox's lock, then Home.HoldLayers, then the home's.
package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Reason says why a snapshot was made by itself; "" means that a person asked for it.
type Reason string

// The reasons.
const (
	BeforeCommand Reason = "checkpoint" // run or exec with --checkpoint
	BeforeRestore Reason = "restore"
	BeforeMerge   Reason = "merge"
)

// The states that a sandbox always has, where a command names two states.
const (
	Present = "now"
	Source  = "source"
)

// Bounds of a sandbox's snapshots.
const (
	// MaxAutomatic is how many snapshots of each reason are kept; the oldest goes first.
	MaxAutomatic = 20
	// MaxAsked is how many others a sandbox may have.
	MaxAsked = 200
)

// Snapshot is a state of a sandbox.
type Snapshot struct {
	Number    int       `json:"number"` // unique in the sandbox, never used again
	Label     string    `json:"label,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	Reason    Reason    `json:"reason,omitempty"`
	// Command is the command before which it was made, escaped, or the snapshot that was
	// restored, or the sandbox, or NAME@SNAPSHOT, of which the changes were merged.
	Command string `json:"command,omitempty"`
	// Parts are the states of the workspace, "", and of mounts by name.
	Parts map[string]Part `json:"parts"`
	// SyncHeld says that the server held the sync of the sandbox: the changes may reach the
	// codebase only by an apply, also after a restore and in a fork.
	SyncHeld bool `json:"sync_held,omitempty"`
}

// Part is the state of a workspace or a mount.
type Part struct {
	// Layer is the highest frozen layer; "" is the source without changes.
	Layer string `json:"layer,omitempty"`
	// Source is the host path of the source. Dev, Ino and Born identify it as in record.Source; Ino
	// is 0 in lists of agentfense before it recorded them.
	Source record.HostPath `json:"source"`
	Dev    uint64          `json:"dev,omitempty"`
	Ino    uint64          `json:"ino,omitempty"`
	Born   int64           `json:"born,omitempty"`
}

// isReplaced reports whether now, which is at the path of the part's source, is another directory.
func (p Part) isReplaced(now record.Source) bool {
	return p.Ino != 0 && !now.IsSame(record.Source{Path: p.Source, Dev: p.Dev, Ino: p.Ino, Born: p.Born})
}

// Origin says of which sandbox one is a fork.
type Origin struct {
	Name string    `json:"name"`
	ID   record.ID `json:"id"`
	// Snapshot is the number of a snapshot, 0 for the state at that time.
	Snapshot int `json:"snapshot,omitempty"`
	// Layer is the frozen layer with which its workspace began; "" is the source without changes.
	// It stays as long as the sandbox: a merge compares with it.
	Layer string `json:"layer,omitempty"`
}

// List is what a sandbox has of snapshots.
type List struct {
	Version   int        `json:"version"`
	Next      int        `json:"next"` // the number of the next snapshot
	Origin    *Origin    `json:"origin,omitempty"`
	Snapshots []Snapshot `json:"snapshots"` // by number
}

const (
	listFile    = "snapshots.json"
	listVersion = 1
)

// Ref returns how a command names the snapshot: "s" and its number.
func (s *Snapshot) Ref() string { return "s" + strconv.Itoa(s.Number) }

var (
	labelForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`) })
	numberForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^s[0-9]+$`) })
	backForm   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^@?\{([0-9]{1,9})\}$`) })
)

const maxLabelBytes = 63

// CheckLabel checks a label: 1 to 63 letters, digits, '.', '_' and '-' that start with a letter or
// a digit, and do not look like a number. Errors: Invalid.
func CheckLabel(label string) error {
	if len(label) > maxLabelBytes || !labelForm().MatchString(label) || numberForm().MatchString(label) || label == Present || label == Source {
		return errdefs.New(errdefs.Invalid, "snapshot label %s: want 1 to 63 letters, digits, '.', '_' and '-', starting with a letter or digit, and not 's' and a number, %q or %q", vpath.Quote(label), Present, Source)
	}
	return nil
}

// Read reads the list of a sandbox. Errors: Precondition, naming the file, if it is damaged.
func Read(sb *record.Sandbox) (List, error) { return readList(sb.Dir()) }

func readList(dir string) (List, error) {
	path := filepath.Join(dir, listFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return List{Version: listVersion, Next: 1}, nil
	}
	if err != nil {
		return List{}, record.HostError("snapshots", err)
	}
	var l List
	if err := json.Unmarshal(text, &l); err != nil {
		return List{}, errdefs.New(errdefs.Precondition, "snapshots %s: damaged: %w", path, err)
	}
	if l.Version != listVersion {
		return List{}, errdefs.New(errdefs.Precondition, "snapshots %s: has version %d, this agentfense knows %d", path, l.Version, listVersion)
	}
	if o := l.Origin; o != nil && o.Layer != "" && !layer.IsLayerName(o.Layer) {
		return List{}, errdefs.New(errdefs.Precondition, "snapshots %s: damaged: origin names no layer", path)
	}
	for _, s := range l.Snapshots {
		for _, part := range s.Parts {
			if part.Layer != "" && !layer.IsLayerName(part.Layer) {
				return List{}, errdefs.New(errdefs.Precondition, "snapshots %s: damaged: %s names no layer", path, s.Ref())
			}
		}
	}
	return l, nil
}

// write writes the list to the directory of a sandbox by put, such as safefs.WriteDurably.
func (l *List) write(dir string, put func(dir, name string, data []byte) error) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return errdefs.New(errdefs.Internal, "snapshots: %w", err)
	}
	if err := put(dir, listFile, append(text, '\n')); err != nil {
		return record.HostError("snapshots", err)
	}
	return nil
}

// change changes the list of a sandbox.
func change(sb *record.Sandbox, do func(*List) error) error {
	return sb.Home.Locked(func() error {
		l, err := Read(sb)
		if err != nil {
			return err
		}
		if err := do(&l); err != nil {
			return err
		}
		return l.write(sb.Dir(), safefs.WriteDurably)
	})
}

// Find returns the snapshot that ref names: "s" and a number, a label, or "@{N}", the state before
// the last step but N-1 of those that keep it: commands with --checkpoint, and merges. Errors:
// NotFound.
func (l *List) Find(sandbox, ref string) (Snapshot, error) {
	for _, s := range l.Snapshots {
		if s.Ref() == ref || s.Label == ref && ref != "" {
			return s, nil
		}
	}
	m := backForm().FindStringSubmatch(ref)
	if m == nil {
		return Snapshot{}, errdefs.New(errdefs.NotFound, "sandbox %s: no snapshot %s; list them%s", sandbox, vpath.Quote(ref), errdefs.Command("snapshot ls "+sandbox))
	}
	n, _ := strconv.Atoi(m[1]) // of nine digits
	for _, s := range slices.Backward(l.Snapshots) {
		if s.Reason != BeforeCommand && s.Reason != BeforeMerge {
			continue
		}
		if n--; n == 0 {
			return s, nil
		}
	}
	return Snapshot{}, errdefs.New(errdefs.NotFound, "sandbox %s: no snapshot @{%s}: a command with --checkpoint (in the API: checkpoint) keeps one, and a merge, %d of each at most", sandbox, m[1], MaxAutomatic)
}

// SplitRef splits NAME@SNAPSHOT; snapshot is "" without.
func SplitRef(text string) (name, snapshot string, err error) {
	name, snapshot, has := strings.Cut(text, "@")
	if has && snapshot == "" {
		return "", "", errdefs.New(errdefs.Invalid, "%s: want NAME@SNAPSHOT, such as fix@s1 or fix@{1}", vpath.Quote(text))
	}
	return name, snapshot, nil
}

// layersOf returns the layers of the parts.
func (s *Snapshot) layersOf() map[string]string {
	layers := make(map[string]string, len(s.Parts))
	for mount, part := range s.Parts {
		layers[mount] = part.Layer
	}
	return layers
}

// describe returns the snapshot for messages.
func (s *Snapshot) describe() string {
	if s.Label == "" {
		return s.Ref()
	}
	return fmt.Sprintf("%s (%s)", s.Ref(), s.Label)
}

// KeptLayers returns the highest frozen layers that the snapshots of a mount of the sandbox have.
// The mount "" is the workspace. Errors: as Read.
func KeptLayers(sb *record.Sandbox, mount string) ([]string, error) {
	l, err := Read(sb)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range l.Snapshots {
		if layer := s.Parts[mount].Layer; layer != "" {
			names = append(names, layer)
		}
	}
	return names, nil
}

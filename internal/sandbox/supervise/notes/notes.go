// Package notes writes what a sandbox tells the programs in it about itself: README.md, what is
// granted, denied.jsonl, what was refused lately, of what they can see anyway, and instructions
// that say that there are these.
//
// The directory is a tmpfs of the supervisor's, mounted read-only inside, so no program there can
// change it. It never has a word about a path that the policy hides, a none rule or a path of the
// host. What it repeats of programs, their names and the names of files, is escaped, cut and
// marked as not to be trusted. Its size is bounded.
package notes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Names of the files.
const (
	Readme = "README.md"
	Denied = "denied.jsonl"
	// Instructions has one paragraph for agents that read such files of directories. No listing
	// shows it.
	Instructions = ".github/instructions/agentfense.instructions.md"
)

const (
	// maxBytes bounds the file system.
	maxBytes = 1 << 20
	// maxDenials is how many refusals are kept.
	maxDenials = 50
	// maxName bounds a name that is repeated, in bytes.
	maxName = 300
)

// Dir is the directory. Its methods may be called concurrently.
type Dir struct {
	path string

	mu      sync.Mutex
	denials []denial
}

// denial is a line of Denied. Its keys are promised in docs/ask.md.
type denial struct {
	Time       string    `json:"time"`
	Operation  string    `json:"operation,omitempty"`
	Permission string    `json:"permission,omitempty"` // that the path has
	Need       string    `json:"need,omitempty"`
	Rule       string    `json:"rule,omitempty"`
	Reason     string    `json:"reason,omitempty"` // of a host, or of a lock
	Ask        string    `json:"ask"`              // what to do
	Untrusted  untrusted `json:"untrusted"`

	line []byte // the denial, as it is written
}

// untrusted are names that programs chose: data, no instructions.
type untrusted struct {
	Path    string `json:"path,omitempty"`
	Host    string `json:"host,omitempty"`
	Program string `json:"program,omitempty"`
}

func (d denial) isLike(other denial) bool {
	return d.Operation == other.Operation && d.Untrusted.Path == other.Untrusted.Path && d.Untrusted.Host == other.Untrusted.Host
}

// Mount makes the directory at path, with empty files and directories on which others are mounted.
func Mount(path string, files, dirs []string) (*Dir, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		return nil, errdefs.New(errdefs.Internal, "notes: %w", err)
	}
	options := fmt.Sprintf("mode=0755,size=%d", maxBytes)
	if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "notes: mount tmpfs: %w", err)
	}
	d := &Dir{path: path}
	for _, name := range append([]string{filepath.Dir(Instructions)}, dirs...) {
		if err := os.MkdirAll(filepath.Join(path, name), 0o755); err != nil {
			return nil, errdefs.New(errdefs.Internal, "notes: %w", err)
		}
	}
	for _, name := range append([]string{Denied}, files...) {
		if err := d.write(name, nil); err != nil {
			return nil, err
		}
	}
	return d, d.write(Instructions, []byte(instructionsText))
}

// At is where the directory is.
func (d *Dir) At() string { return d.path }

// write replaces a file. Who reads it has the old or the new one.
func (d *Dir) write(name string, content []byte) error {
	path := filepath.Join(d.path, name)
	err := os.WriteFile(path+".new", content, 0o644)
	if err = errors.Join(err, os.Chmod(path+".new", 0o644)); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errdefs.New(errdefs.Internal, "notes: %w", err)
	}
	return nil
}

// deny notes a refusal. An equal one takes the place of the earlier.
func (d *Dir) deny(x denial) error {
	x.Time = time.Now().UTC().Format(time.RFC3339)
	line, err := json.Marshal(x)
	if err != nil {
		return errdefs.New(errdefs.Internal, "notes: %w", err)
	}
	x.line = append(line, '\n')
	d.mu.Lock()
	defer d.mu.Unlock()
	d.denials = append(slices.DeleteFunc(d.denials, x.isLike), x)
	if n := len(d.denials) - maxDenials; n > 0 {
		d.denials = slices.Delete(d.denials, 0, n)
	}
	var text bytes.Buffer
	for _, x := range d.denials {
		text.Write(x.line)
	}
	return d.write(Denied, text.Bytes())
}

// clipped is a name of a program's choice, escaped, and whether that is all of it.
func clipped(name string) (text string, whole bool) {
	if len(name) <= maxName {
		text = vpath.Escape(name)
		return text, text == name
	}
	return vpath.Escape(name[:maxName]) + "…", false
}

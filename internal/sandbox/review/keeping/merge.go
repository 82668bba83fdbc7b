package keeping

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Merged is a file that is applied in part: a JSON file of which only keys are kept, or a text of
// which only hunks were chosen.
type Merged struct {
	Text  []byte // what the source gets
	Mode  uint32 // and its permission bits
	Sum   string // SHA-256 of the delta's file, in hex
	Mtime unix.Timespec
	Keys  []string // that were taken
	// Conflicts are keys that the source has changed, too.
	Conflicts []string
	// Rest says that the delta's file differs in other keys, too.
	Rest bool
}

// Merge merges the keys of the delta's file into the source's, which now described before it
// was read. Errors: Invalid for what is no JSON object; changes.ErrMoved; Exhausted.
func Merge(w *changes.Work, c *changes.Change, now *layer.Base, keys []string) (*Merged, error) {
	ours, err := deltaText(w, c)
	if err != nil {
		return nil, err
	}
	if now.Mode&record.TypeBits != unix.S_IFREG {
		return nil, changes.ErrMoved
	}
	var theirs []byte
	err = rights.AsUser(func() (err error) {
		theirs, err = read(func() (*os.File, error) { return w.Stack.OpenSource(c.Path) })
		return err
	})
	if err != nil {
		return nil, err
	}
	began := theirs
	if !c.Fresh {
		began, err = read(func() (*os.File, error) { return w.Stack.BaseContent(c.Base) })
	}
	if errdefs.Is(err, errdefs.NotFound) {
		err = errors.New("the source has changed, and the version that the sandbox began with was too large to be stored")
	}
	if err != nil {
		return nil, err
	}
	m, err := jsonkeys.Merge(theirs, began, ours, keys)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(ours)
	mtime, err := unix.TimeToTimespec(time.Now())
	return &Merged{Text: m.Text, Mode: now.Mode & record.PermBits, Sum: hex.EncodeToString(sum[:]), Mtime: mtime, Keys: m.Taken, Conflicts: m.Conflicts, Rest: m.Rest}, err
}

// read reads a JSON file, as far as one may be large.
func read(open func() (*os.File, error)) ([]byte, error) {
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, jsonkeys.MaxBytes+1))
	if err == nil && len(text) > jsonkeys.MaxBytes {
		err = errdefs.New(errdefs.Invalid, "it is larger than %d MiB", jsonkeys.MaxBytes>>20)
	}
	return text, err
}

// deltaText returns the delta's file. The apply compares it with what it looked at before.
func deltaText(w *changes.Work, c *changes.Change) (text []byte, err error) {
	err = rights.AsOwner(func() (err error) {
		text, err = read(func() (*os.File, error) { return w.Stack.OpenDelta(c.Path) })
		return err
	})
	if err != nil {
		err = fmt.Errorf("the sandbox's file: %w", err)
	}
	return text, err
}

// Package narrow prepares what an inner sandbox sees: copies of the sandbox's own mounts, in which
// parts are read-only or covered.
//
// The process that serves a view must not access it, so another process works here: this program
// with Verb, as in package overlay. It opens everything beneath handles and follows no link,
// because commands choose the names and may change them meanwhile. A copy is always one of the
// sandbox's own mounts at the same path (package inner has no way to say another), so it shows
// nothing that the sandbox does not see there.
//
// A mount needs something to be mounted on. Where nothing is in the view, an empty file or
// directory is made as the sandbox's user. Mount returns these points, and Remove removes them at
// the end.
package narrow

import (
	"context"

	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/worker"
)

// Verb is the hidden first word of a command line that narrows.
const Verb = "__narrow"

// what begins errors.
const what = "inner sandbox"

// Area is a mount of the sandbox that commands can write to.
type Area struct {
	Name string       `json:"name"` // of its directory among the results
	From inner.Text   `json:"from"` // where the mount is on the host
	At   []inner.Text `json:"at"`   // where it is inside
	// Sealed are paths below it, relative, at which the policy lets no program make anything. Where
	// nothing is at one, nothing needs to be covered.
	Sealed []inner.Text `json:"sealed,omitempty"`
}

// Point is what was made in an area to mount on it.
type Point struct {
	Area int        `json:"area"`
	Path inner.Text `json:"path"` // relative
	Dir  bool       `json:"dir,omitempty"`
	Ino  uint64     `json:"ino"`
}

// Job is what a process does.
type Job struct {
	Areas []Area       `json:"areas"`
	Dir   inner.Text   `json:"dir,omitempty"` // where the results go: a directory Name for each area
	Steps []inner.Step `json:"steps,omitempty"`
	// UID and GID are the user of the sandbox, who makes points.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Remove are points to remove instead, if they are still empty.
	Remove []Point `json:"remove,omitempty"`
}

// Mount mounts a tmpfs at job.Dir, and the narrowed areas in it. After an error, too, the caller
// unmounts job.Dir and removes the points. Errors: Invalid, NotFound, Denied, Unsupported,
// Deadline.
func Mount(ctx context.Context, job Job) ([]Point, error) {
	return worker.Run[[]Point](ctx, Verb, what, job)
}

// Remove removes points.
func Remove(ctx context.Context, job Job) error {
	_, err := worker.Run[[]Point](ctx, Verb, what, job)
	return err
}

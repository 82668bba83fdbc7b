package client

import (
	"context"
	"errors"
	"io"
	"iter"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Watch yields the changes in the view of a path and its direct entries, with recursive
// also of everything further below, from when Watch returns until the sandbox stops, or until ctx
// ends, which yields an error. "" is the root. The result can be ranged over once; otherwise
// only the end of ctx ends the watch.
//
// Changes by commands and by the server are reported at once: uploads, changes of other sandboxes
// of the codebase, and discarded changes. Changes that other programs make to the codebase's files
// are reported for directories that a process in the sandbox has looked into. Changes of a path in
// quick succession become one; a rename is a deletion and a creation. Paths that the policy hides
// are not reported. A change of KindLost means that there were too many changes before it to keep
// all.
//
// Errors: ErrNotRunning; ErrNotFound for a name that no mount has; ErrExhausted if the sandbox
// already has 64 watches.
func (f SandboxFiles) Watch(ctx context.Context, path string, recursive bool) (iter.Seq2[FileChange, error], error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := f.c.sandboxes.WatchView(ctx, &sandboxv1.WatchViewRequest{SandboxId: f.id, Mount: f.mount, Path: f.path(path), Recursive: recursive})
	if err == nil {
		header, headerErr := stream.Header()
		if err = headerErr; err == nil && header == nil {
			_, err = stream.Recv() // the stream has already ended: Recv returns its error
		}
	}
	if err != nil {
		defer cancel()
		return nil, f.c.fail(ctx, "watch", err)
	}
	lost := FileChange{Mount: f.mount, Path: vpath.DecodeText(f.path(path)), Kind: KindLost}
	return func(yield func(FileChange, error) bool) {
		defer cancel()
		for {
			told, err := stream.Recv()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(FileChange{}, f.c.fail(ctx, "watch", err))
				}
				return
			}
			for _, c := range changesFrom(told, lost) {
				if !yield(c, nil) {
					return
				}
			}
		}
	}, nil
}

func changesFrom(told *sandboxv1.WatchViewResponse, lost FileChange) []FileChange {
	var changes []FileChange
	if told.Lost {
		changes = append(changes, lost)
	}
	for _, c := range told.Changes {
		changes = append(changes, fileChangeFrom(c))
	}
	return changes
}

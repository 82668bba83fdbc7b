package client

import (
	"context"
	"errors"
	"io"
	"iter"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Watch yields what changes in the sandbox's view at a path and in it, with
// recursive also further below, from when Watch returns until ctx ends, which
// is an error, or the sandbox is stopped. "" is the workspace.
//
// What commands do is told at once, and what the server does: uploads, other
// sandboxes of the codebase, discarded changes. What others do to the files of a
// codebase is told of directories that something in the sandbox has looked into.
// Changes of a path in quick succession are one; a rename is a deletion and a
// creation. Of what the policy hides nothing is told. A change of KindLost
// says that more changed before than could be kept. What is returned may be
// ranged over once; where it never is, the end of ctx alone ends the watch.
//
// Errors: ErrNotRunning; ErrExhausted if 64 watch the sandbox already.
func (f SandboxFiles) Watch(ctx context.Context, path string, recursive bool) (iter.Seq2[FileChange, error], error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := f.c.sandboxes.WatchView(ctx, &sandboxv1.WatchViewRequest{SandboxId: f.id, Path: inside(path), Recursive: recursive})
	if err == nil {
		header, headerErr := stream.Header()
		if err = headerErr; err == nil && header == nil {
			_, err = stream.Recv() // it ended at once and says why
		}
	}
	if err != nil {
		defer cancel()
		return nil, f.c.fail(ctx, "watch", err)
	}
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
			for _, c := range changesFrom(told, inWorkspace(path)) {
				if !yield(c, nil) {
					return
				}
			}
		}
	}, nil
}

func changesFrom(told *sandboxv1.WatchViewResponse, path string) []FileChange {
	var changes []FileChange
	if told.Lost {
		changes = append(changes, FileChange{Path: path, Kind: KindLost})
	}
	for _, c := range told.Changes {
		changes = append(changes, fileChangeFrom(c))
	}
	return changes
}

package remote

import "context"

// UnsavedBranches returns 0: no sandbox of a server has a clean repository.
func (b *Backend) UnsavedBranches(context.Context, string) (int, error) { return 0, nil }

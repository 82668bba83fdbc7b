package stream

import "github.com/agentfense/agentfense/internal/lib/errdefs"

// NextPage returns the token of the next page, "" after the last. Errors: Internal if it is the
// same as the token of this page, which would never end.
func NextPage(asked, next string) (token string, err error) {
	if next != "" && next == asked {
		return "", errdefs.New(errdefs.Internal, "the server returned the token of the same page")
	}
	return next, nil
}

package stream

import "github.com/agentfense/agentfense/internal/lib/errdefs"

// NextPage is the token of the page behind the one that was asked for with a
// token, "" behind the last. Errors: Internal for a server that would be asked
// without end.
func NextPage(asked, next string) (token string, err error) {
	if next != "" && next == asked {
		return "", errdefs.New(errdefs.Internal, "the server names the same page again")
	}
	return next, nil
}

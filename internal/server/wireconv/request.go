package wireconv

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The Decode functions of requests read every field; TestEveryFieldOfARequestIsRead fails for one
// that they leave out. Errors: Invalid, with the name of the field; NotFound for a malformed id.

// required refuses an empty field.
func required(field, value string) error {
	if value == "" {
		return errdefs.New(errdefs.Invalid, "%s: is required", field)
	}
	return nil
}

// CodebaseID returns which codebase a request is about.
func CodebaseID(r interface{ GetCodebaseId() string }) (id.Codebase, error) {
	if err := required("codebase_id", r.GetCodebaseId()); err != nil {
		return "", err
	}
	return id.ParseCodebase(r.GetCodebaseId())
}

// SandboxID returns which sandbox a request is about.
func SandboxID(r interface{ GetSandboxId() string }) (id.Sandbox, error) {
	if err := required("sandbox_id", r.GetSandboxId()); err != nil {
		return "", err
	}
	return id.ParseSandbox(r.GetSandboxId())
}

// SessionID returns which session a request is about.
func SessionID(r interface{ GetSessionId() string }) (id.Session, error) {
	if err := required("session_id", r.GetSessionId()); err != nil {
		return "", err
	}
	return id.ParseSession(r.GetSessionId())
}

// requestPath reads a path; "" is the root.
func requestPath(field, text string) (vpath.Path, error) {
	p, err := vpath.ParseText(text)
	if err != nil {
		return "", errdefs.New(errdefs.Invalid, "%s: %w", field, err)
	}
	return p, nil
}

// requestPaths reads which changes are meant; no path means all. An empty path is an error: an
// unset variable leaves one, and read as the root it would mean all.
func requestPaths(texts []string) ([]vpath.Path, error) {
	var paths []vpath.Path
	for i, text := range texts {
		p, err := vpath.ParseSelected(text)
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "paths[%d]: %w", i, err)
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// requestDuration reads a duration; 0, also if it is absent, stands for the server's default.
func requestDuration(field string, d *durationpb.Duration) (time.Duration, error) {
	switch {
	case d == nil:
		return 0, nil
	case d.CheckValid() != nil:
		return 0, errdefs.New(errdefs.Invalid, "%s: malformed duration", field)
	}
	return d.AsDuration(), notNegative(field, d.AsDuration())
}

// requestTime reads a time; absent is the zero time.
func requestTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t != nil && t.CheckValid() != nil {
		return time.Time{}, errdefs.New(errdefs.Invalid, "%s: malformed time", field)
	}
	return decodeTime(t), nil
}

// notNegative refuses a negative number.
func notNegative[N ~int32 | ~int64](field string, n N) error {
	if n < 0 {
		return errdefs.New(errdefs.Invalid, "%s: %v is negative", field, n)
	}
	return nil
}

// notAbove refuses a number above the largest one.
func notAbove(field string, n, most uint32) error {
	if n > most {
		return errdefs.New(errdefs.Invalid, "%s: %d is more than %d", field, n, most)
	}
	return nil
}

// Page is the part of a listing that a request asks for.
type Page struct {
	Size  int    // at most so many entries; 0: the server's default
	Token string // where the page before ended; "" for the first
}

func requestPage(r interface {
	GetPageSize() int32
	GetPageToken() string
},
) (Page, error) {
	return Page{Size: int(r.GetPageSize()), Token: r.GetPageToken()}, notNegative("page_size", r.GetPageSize())
}

// PageAfter is a Page of a listing by path.
type PageAfter struct {
	Size  int        // at most so many entries; 0: as many as fit
	After vpath.Path // the last path of the page before; "" for the first page
}

func requestPageAfter(size int32, token string) (PageAfter, error) {
	if err := notNegative("page_size", size); err != nil || token == "" {
		return PageAfter{Size: int(size)}, err
	}
	after, err := requestPath("page_token", token)
	return PageAfter{Size: int(size), After: after}, err
}

package wireconv

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// encodeTime returns a time, absent for the zero time.
func encodeTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// decodeTime returns the zero time for an absent one.
func decodeTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// encodePaths encodes paths for the API.
func encodePaths(paths []vpath.Path) []string {
	var list []string
	for _, p := range paths {
		list = append(list, p.Text())
	}
	return list
}

// decodePaths reads paths that a server sent.
func decodePaths(texts []string) ([]vpath.Path, error) {
	var paths []vpath.Path
	for _, text := range texts {
		p, err := decodePath(text)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// decodePath reads a path that a server sent. Errors: Internal for an invalid one, because the path
// may name a file of this host.
func decodePath(text string) (vpath.Path, error) {
	p, err := vpath.ParseText(text)
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "server returned an invalid path: %w", err)
	}
	return p, nil
}

// EncodeOutput returns output as a string, and as bytes if the string differs from it.
func EncodeOutput(data []byte) (text string, raw []byte) {
	text = validText(string(data))
	if text != string(data) {
		return text, data
	}
	return text, nil
}

// decodeOutput is the reverse of EncodeOutput.
func decodeOutput(text string, raw []byte) []byte {
	if len(raw) > 0 {
		return raw
	}
	return []byte(text)
}

// validText replaces what is not UTF-8, which a string of a message cannot hold.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

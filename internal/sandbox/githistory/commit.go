package githistory

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's object ids
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// commitMax is the size in bytes of the largest commit that ReadCommit takes,
// before and after inflating.
const commitMax = 1 << 20

// subjectMax is how many bytes of a message a Commit has.
const subjectMax = 4 << 10

// Commit has fields of a commit object.
type Commit struct {
	Parents []string // ids
	Subject string   // first line of the message, at most 4 KiB; hostile text
}

// LooseName returns the path of the loose object with this id in an object directory, or ""
// for a malformed id.
func LooseName(id string) string {
	if !isObjectID(id) {
		return ""
	}
	return id[:2] + "/" + id[2:]
}

// ReadCommit reads the commit with this id from its loose file. It reads only r. Errors:
// Precondition if r is not the commit with this id, or is larger than 1 MiB.
func ReadCommit(id string, r io.Reader) (Commit, error) {
	body, err := readLoose(id, "commit", r)
	if err != nil {
		return Commit{}, errdefs.New(errdefs.Precondition, "git object %q: %w", id, err)
	}
	return parseCommit(body), nil
}

// readLoose returns the content of a loose object (gitformat-loose(5)): a header with its
// type and size, and the content, deflated together. The id is the hash of both. git checks
// that, too: otherwise a file with a wrong id would show a person another commit than git.
func readLoose(id, kind string, r io.Reader) ([]byte, error) {
	z, err := zlib.NewReader(io.LimitReader(r, commitMax))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(z, commitMax+1))
	if err != nil {
		return nil, err
	}
	if len(content) > commitMax {
		return nil, errors.New("too large")
	}
	return checkObject(id, kind, content)
}

// checkObject returns the body of an object whose header and body are content.
func checkObject(id, kind string, content []byte) ([]byte, error) {
	if hashOf(content, len(id)) != id {
		return nil, errors.New("its content has another id")
	}
	header, body, _ := bytes.Cut(content, []byte{0})
	if string(header) != kind+" "+strconv.Itoa(len(body)) {
		return nil, errors.New("no " + kind)
	}
	return body, nil
}

func hashOf(content []byte, digits int) string {
	if digits == sha256Digits {
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(content) //nolint:gosec // git's object ids
	return hex.EncodeToString(sum[:])
}

// parseCommit reads the headers up to an empty line, and the first line of the
// message that is not empty.
func parseCommit(body []byte) Commit {
	var c Commit
	headers, message, _ := strings.Cut(string(body), "\n\n")
	for line := range strings.Lines(headers) {
		if id, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "parent "); ok && isObjectID(id) {
			c.Parents = append(c.Parents, strings.Clone(id)) // without the message
		}
	}
	subject, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	c.Subject = strings.Clone(subject[:min(len(subject), subjectMax)])
	return c
}

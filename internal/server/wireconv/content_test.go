package wireconv

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
)

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// textContent is the content of a file that had one text and has another.
func textContent(was, is string) review.Content {
	c := review.Content{Hunks: textdiff.Hunks([]byte(was), []byte(is)), SHA256: sumOf(is)}
	c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
	return c
}

// A content that is sent as a patch and read again is the same.
func TestContentSurvives(t *testing.T) {
	file := &review.Side{Mode: 0o100644, SizeBytes: 4}
	for name, c := range map[string]struct {
		old     *review.Side
		content review.Content
	}{
		"changed text":          {file, textContent("a\nb\n", "a\nc\n")},
		"new text":              {nil, textContent("", "a\nb\n")},
		"text that is not utf8": {file, textContent("a\xff\n", "a\xfe\n")},
		"no newline at the end": {file, textContent("a", "b")},
		"binary":                {file, review.Content{Binary: true, SHA256: sumOf("x")}},
		"too large":             {file, review.Content{TooLarge: true, SHA256: sumOf("x")}},
		"unknown":               {file, review.Content{Unknown: true, SHA256: sumOf("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			status := changes.Modified
			if c.old == nil {
				status = changes.Added
			}
			f := review.FileDiff{Path: "a", Status: status, Old: c.old, New: file}
			r := review.Of("test", "", "", "", []review.FileDiff{f}, nil, func(*review.FileDiff) (review.Content, error) { return c.content, nil })
			var patch bytes.Buffer
			sum, err := gitpatch.Write(&patch, r, &f)
			if err != nil {
				t.Fatal(err)
			}
			m := EncodeFileDiff(&f)
			EncodeContent(m, &f, sum, patch.Bytes())
			if int(m.Inserted) != c.content.Inserted || int(m.Deleted) != c.content.Deleted {
				t.Errorf("%d lines inserted, %d deleted, want %d and %d", m.Inserted, m.Deleted, c.content.Inserted, c.content.Deleted)
			}
			back, err := DecodeContent(m, &f)
			if diff := cmp.Diff(c.content, back); err != nil || diff != "" {
				t.Errorf("error %v, diff:\n%s", err, diff)
			}
		})
	}
}

// A server that shows another text than the one that it names is not believed.
func TestAnotherTextThanNamedIsRefused(t *testing.T) {
	f := review.FileDiff{Path: "a", Status: changes.Added, New: &review.Side{Mode: 0o100644}}
	c := textContent("", "a\n")
	r := review.Of("test", "", "", "", []review.FileDiff{f}, nil, func(*review.FileDiff) (review.Content, error) { return c, nil })
	var patch bytes.Buffer
	if _, err := gitpatch.Write(&patch, r, &f); err != nil {
		t.Fatal(err)
	}
	m := EncodeFileDiff(&f)
	c.SHA256 = sumOf("b\n")
	EncodeContent(m, &f, c, patch.Bytes())
	if _, err := DecodeContent(m, &f); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("error %v, want Internal", err)
	}
}

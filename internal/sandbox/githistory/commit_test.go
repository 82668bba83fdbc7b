package githistory

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// loose returns an object and its id.
func loose(t *testing.T, kind, body string) (id string, deflated []byte) {
	t.Helper()
	content := fmt.Sprintf("%s %d\x00%s", kind, len(body), body)
	sum := sha1.Sum([]byte(content))
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	if _, err := z.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum[:]), b.Bytes()
}

const commitBody = "tree 0123456789012345678901234567890123456789\n" +
	"parent 1111111111111111111111111111111111111111\n" +
	"parent 2222222222222222222222222222222222222222\n" +
	"author A <a@example.com> 1 +0000\n\nFix it\n\nparent 3333333333333333333333333333333333333333\n"

func TestReadCommit(t *testing.T) {
	id, deflated := loose(t, "commit", commitBody)
	got, err := ReadCommit(id, bytes.NewReader(deflated))
	if err != nil {
		t.Fatal(err)
	}
	want := Commit{
		Parents: []string{strings.Repeat("1", 40), strings.Repeat("2", 40)},
		Subject: "Fix it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestReadCommitRefusesWhatGitWouldRefuse(t *testing.T) {
	id, deflated := loose(t, "commit", commitBody)
	other, blob := loose(t, "blob", commitBody)
	bombID, bomb := loose(t, "commit", strings.Repeat("x", commitMax+1))
	for name, c := range map[string]struct {
		id      string
		content []byte
	}{
		"a file that lies about its id": {other, deflated},
		"a blob":                        {other, blob},
		"a file that was cut":           {id, deflated[:len(deflated)/2]},
		"no deflated data":              {id, []byte("commit")},
		"what inflates to too much":     {bombID, bomb},
	} {
		if _, err := ReadCommit(c.id, bytes.NewReader(c.content)); !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

func TestLooseName(t *testing.T) {
	if got := LooseName("../../../../etc/passwd"); got != "" {
		t.Errorf("got %q for what is no id", got)
	}
	if got, want := LooseName(strings.Repeat("a", 40)), "aa/"+strings.Repeat("a", 38); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

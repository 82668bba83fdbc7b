//go:build linux

package client_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/client"
)

func TestApplyHunks(t *testing.T) {
	text := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"
	box, dir := linked(t, open(t), "full-access", map[string]string{"f": text, "g": "1\n"})
	run(t, box, "sed -i '1s/.*/first/; 12s/.*/last/' f; echo 2 >g")
	review, err := box.Review(t.Context())
	if err != nil || len(review.Files) != 2 {
		t.Fatalf("%v, %v", review, err)
	}
	f, g := review.Files[0], review.Files[1]
	if len(f.Hunks) != 2 || f.Hunks[1].NewStart != 9 || f.ID == "" || g.ID == "" {
		t.Fatalf("ids: %+v, %+v", f, g)
	}
	done, err := box.ApplyHunks(t.Context(), review.Digest, f.Hunks[1].ID, g.ID)
	if err != nil || done.AppliedCount != 2 || done.Results[0].Hunks != 1 || done.Results[0].OfHunks != 2 {
		t.Errorf("apply: %+v, %v", done, err)
	}
	want := strings.Replace(text, "12", "last", 1)
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != want {
		t.Errorf("on the host: %q, %v", got, err)
	}
	if rest, err := box.Diff(t.Context()); err != nil || len(rest) != 1 || len(rest[0].Hunks) != 1 || rest[0].Hunks[0].ID != f.Hunks[0].ID {
		t.Errorf("the rest: %+v, %v", rest, err)
	}
	if none, err := box.ApplyHunks(t.Context(), review.Digest); err != nil || none.AppliedCount != 0 {
		t.Errorf("without ids: %+v, %v", none, err)
	}
	if _, err := box.ApplyHunks(t.Context(), "", f.ID); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("without a digest: %v", err)
	}
	if _, err := box.ApplyHunks(t.Context(), review.Digest, "f"); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a path in place of an id: %v", err)
	}
	if names, err := box.DiffNames(t.Context()); err != nil || len(names) != 1 || names[0].ID != "" || len(names[0].Hunks) != 0 {
		t.Errorf("a list of names: %+v, %v", names, err)
	}
}

package cli

import (
	"slices"
	"testing"
)

func TestOutermostLeavesOutWhatAnotherMountShows(t *testing.T) {
	got := outermost([]string{"/a/b", "/c", "/a", "/a", "/cd", "/c/d/e"})
	if want := []string{"/c", "/a", "/cd"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

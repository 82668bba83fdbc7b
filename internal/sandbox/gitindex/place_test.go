package gitindex

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestWorkTreeOf(t *testing.T) {
	for p, want := range map[vpath.Path]vpath.Path{
		"/.git/index":              "/",
		"/a/b/.git/index":          "/a/b",
		"/index":                   "",
		"/.git/index.lock":         "",
		"/.git/modules/m/index":    "",
		"/.git/worktrees/w/index":  "",
		"/a.git/index":             "",
		"/.git/refs/heads/x/index": "",
	} {
		if got, ok := WorkTreeOf(p); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", p, got, ok, want)
		}
	}
}

func TestTrackedPathTakesNoNameThatGitWouldNotCheckOut(t *testing.T) {
	for _, c := range []struct {
		root vpath.Path
		name string
		want vpath.Path
	}{
		{"/", ".env", "/.env"},
		{"/a", "b/.env", "/a/b/.env"},
		{"/a", "sparse/", "/a/sparse"},
		{"/a", "../.env", ""},
		{"/a", "/.env", ""},
		{"/a", "b//.env", ""},
		{"/a", "./.env", ""},
		{"/a", "", ""},
		{"/a", "/", ""},
	} {
		if got, ok := TrackedPath(c.root, c.name); got != c.want || ok != (c.want != "") {
			t.Errorf("%s in %s: got %q, %v, want %q", c.name, c.root, got, ok, c.want)
		}
	}
}

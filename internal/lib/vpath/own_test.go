package vpath_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestOwnPaths(t *testing.T) {
	own := vpath.Path("/a").Child(vpath.OwnName("secrets")).Child("b")
	for _, c := range []struct {
		name, got, want string
	}{
		{"the plain path is what a program sees", string(own.Plain()), "/a/secrets/b"},
		{"the topmost own entry", string(own.OwnRoot().Plain()), "/a/secrets"},
		{"a plain path has none", string(vpath.Path("/a/b").OwnRoot()), ""},
		{"text for people has no mark", own.String(), "/a/secrets/b"},
		{"a plain name stays", vpath.PlainName("x"), "x"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
	if !own.IsOwn() || own.Dir().Dir().IsOwn() || !vpath.IsOwnName(own.Dir().Base()) {
		t.Errorf("%q: the own part begins in the wrong place", string(own))
	}
	if p, err := vpath.Parse(string(own)); err == nil {
		t.Errorf("Parse accepted the own path %q", string(p))
	}
	if vpath.CheckName(vpath.OwnName("x")) == nil {
		t.Error("CheckName accepted an own name")
	}
}

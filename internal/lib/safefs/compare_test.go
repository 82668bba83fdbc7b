package safefs_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

func TestIsBelow(t *testing.T) {
	for _, tt := range []struct {
		path, dir string
		want      bool
	}{
		{"/a", "/a", true},
		{"/a/b", "/a", true},
		{"/ab", "/a", false},
		{"/a", "/a/b", false},
		{"/a", "/", true},
		{"/", "/", true},
		{"/", "/a", false},
		{"/..a", "/", true},
	} {
		if got := safefs.IsBelow(tt.path, tt.dir); got != tt.want {
			t.Errorf("IsBelow(%q, %q) = %t, want %t", tt.path, tt.dir, got, tt.want)
		}
	}
}

func TestHaveSameContent(t *testing.T) {
	broken := errors.New("broken")
	long := bytes.Repeat([]byte("x"), 64<<10)
	for _, tt := range []struct {
		name string
		x, y io.Reader
		want bool
		err  error
	}{
		{"two that are empty", strings.NewReader(""), strings.NewReader(""), true, nil},
		{"one that is empty", strings.NewReader(""), strings.NewReader("a"), false, nil},
		{"alike", strings.NewReader("ab"), iotest.OneByteReader(strings.NewReader("ab")), true, nil},
		{"as long as a block", bytes.NewReader(long), bytes.NewReader(long), true, nil},
		{"longer by a byte behind a block", bytes.NewReader(long), bytes.NewReader(append(bytes.Clone(long), 'y')), false, nil},
		{"one that cannot be read", iotest.ErrReader(broken), strings.NewReader(""), false, broken},
		{"one that breaks off behind what is alike", io.MultiReader(strings.NewReader("a"), iotest.ErrReader(broken)), strings.NewReader("a"), false, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := safefs.HaveSameContent(tt.x, tt.y)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("HaveSameContent = %t, %v; want %t, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

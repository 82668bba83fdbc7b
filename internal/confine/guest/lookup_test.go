package guest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLookUp(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for path, mode := range map[string]os.FileMode{"a/tool": 0o755, "b/tool": 0o755, "b/plain": 0o644, "c/plain": 0o755, "here": 0o755} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("a/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + dir + "/a:" + dir + "/b:" + dir + "/gone"
	tests := []struct {
		name    string
		command string
		env     []string
		want    string
		err     error
	}{
		{"the first directory of PATH wins", "tool", []string{path}, dir + "/a/tool", nil},
		{"the first PATH of the environment counts", "tool", []string{"PATH=" + dir + "/b", path}, dir + "/b/tool", nil},
		{"a file without permission is passed over", "plain", []string{path + ":" + dir + "/c"}, dir + "/c/plain", nil},
		{"a file without permission is remembered", "plain", []string{path}, "", unix.EACCES},
		{"a directory is no command", "dir", []string{path}, "", unix.EACCES},
		{"a name that is nowhere", "other", []string{path}, "", unix.ENOENT},
		{"a name is not looked for here", "here", []string{path}, "", unix.ENOENT},
		{"but is with an empty element", "here", []string{path + ":"}, "./here", nil},
		{"a path is not searched for", "./here", nil, "./here", nil},
		{"a path that is not there", "./gone", nil, "./gone", unix.ENOENT},
		{"a path through a file", "here/x", nil, "here/x", unix.ENOTDIR},
		{"without PATH there is a usual one", "sh", nil, "/usr/bin/sh", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := lookUp(tt.command, tt.env)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestTheFloorRunsACommandOverFUSE(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	d, err := newDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(d.Source(), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := newFloor(d, selectRows(regexp.MustCompile("^start$")))
	if err != nil || f == nil {
		t.Fatalf("got %v, %v", f, err)
	}
	cmd := f.Start(t.Context())
	cmd.Args = append(cmd.Args[:len(cmd.Args)-1], "sh", "-c", "echo new > file; df . | grep -q bwrap+fuse")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(d.Source(), "file"))
	if err != nil || string(text) != "new\n" {
		t.Errorf("in the source: %q, %v", text, err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
}

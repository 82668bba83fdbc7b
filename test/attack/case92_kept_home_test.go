package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A kept home is what commands have left. Links of every kind there, in the places
// where the next start mounts something and everywhere else, lead neither that start
// nor a removal outside, and nobody else's sandbox sees it.
func TestKeptHomeLeadsNowhere(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"r": "", "sub/f": ""}, who...)
		precious := t.TempDir()
		s.Own(precious)
		if err := os.WriteFile(filepath.Join(precious, "file"), []byte("kept\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Own(filepath.Join(precious, "file"))
		// bubblewrap sees the host below /oldroot while it mounts.
		plant := `set -e; cd
			for at in .cache .config workspace ` + strings.TrimPrefix(s.Source, "/") + `; do
				mkdir -p "$(dirname "$at")"; rm -rf "$at"; ln -s /oldroot` + precious + ` "$at"
			done
			ln -s ` + precious + ` link; ln -s ../../../../../../../.. up; mkdir -p shut/x && touch shut/x/y
			cp /bin/true own && chmod 6755 own; mkfifo pipe; touch .bashrc
			! mknod device c 1 3 2>/dev/null; ! cat /run/agentfense/home/../../../` + precious + `/file 2>/dev/null
			chmod 0 shut/x shut .; echo planted`
		if r := s.Run(plant, "--home", "keep"); r.Code != 0 || !strings.Contains(r.Stdout, "planted") {
			t.Fatalf("%+v", r)
		}
		for range 2 {
			r := s.Run(`chmod 700 ~; cd; touch .cache/made workspace/made 2>/dev/null; cat link/file up` + precious + `/file; stat -c %U-%A-%F own pipe`)
			if strings.Contains(r.Stdout, "kept") || !strings.Contains(r.Stdout, "rwxr-xr-x-regular") || !strings.Contains(r.Stdout, "fifo") {
				t.Errorf("%+v", r)
			}
		}
		if r := s.Agentfense("run", "--rm", "--dir", s.Source, "--", "sh", "-c", `ls -A ~ `+filepath.Join(s.Home, "sandboxes", s.Name, "home")); strings.Contains(r.Stdout, "own") {
			t.Errorf("another sandbox sees it: %+v", r)
		}
		names, err := os.ReadDir(precious)
		if err != nil || len(names) != 1 {
			t.Errorf("made outside: %v, %v", names, err)
		}
		agentfense(t, s, "ls")
		agentfense(t, s, "rm", s.Name)
		if content, err := os.ReadFile(filepath.Join(precious, "file")); err != nil || string(content) != "kept\n" {
			t.Errorf("%q, %v", content, err)
		}
		left, err := os.ReadDir(filepath.Join(s.Home, "sandboxes"))
		if err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// What lies in the place of a kept home, and is none, is never shown.
func TestKeptHomeIsADirectoryOfItsUser(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"r": ""}, who...)
		agentfense(t, s, "create", s.Name, "--home", "keep", "--dir", s.Source)
		home := filepath.Join(s.Home, "sandboxes", s.Name, "home")
		if err := os.Symlink("/", home); err != nil {
			t.Fatal(err)
		}
		if r := s.Run("true"); r.Code != 125 || !strings.Contains(r.Stderr, "kept home") {
			t.Errorf("%+v", r)
		}
		if err := os.Remove(home); err != nil {
			t.Fatal(err)
		}
		if r := s.Run("touch ~/f"); r.Code != 0 {
			t.Errorf("%+v", r)
		}
	})
}

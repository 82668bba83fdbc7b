package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// exchanges is how often the two sides of a race change places. What must hold
// holds at each; more of them only look more often.
const exchanges = 500

// A directory that is repeatedly exchanged with a link to a host directory, inside by the
// sandbox or outside by the user, never redirects a read or a write: every step of
// agentfense is relative to a handle.
func TestSwappingADirectoryForALink(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"d/f": "inside", "host/f": "inside", "out/": ""})
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "f"), []byte("the host's"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"l", "m"} {
		if err := os.Symlink(host, filepath.Join(s.Source, link)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := harness.Tree(host)
	if err != nil {
		t.Fatal(err)
	}
	d := s.Talk(swapDirectories, nil, "--preset", "full-access")
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, filepath.Join(s.Source, "host"), unix.AT_FDCWD, filepath.Join(s.Source, "m"), unix.RENAME_EXCHANGE)
	}
	for range exchanges {
		if err := exchange(); err != nil {
			t.Fatal(err)
		}
	}
	if r := d.End(); r.Code != 0 {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
	// The verbs meet the same race, and what they did stays in the source.
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				exchange()
			}
		}
	}()
	for n := range 5 {
		s.Run(fmt.Sprintf("echo %d > host/f; echo %d > host/new; echo %d > m/f", n, n, n))
		s.Agentfense("diff", s.Name)
		s.Agentfense("apply", s.Name)
		s.Agentfense("discard", s.Name)
	}
	close(stop)
	<-done
	after, err := harness.Tree(host)
	if err != nil {
		t.Fatal(err)
	}
	for path, was := range before {
		if after[path] != was {
			t.Errorf("%s was written to:\nwas %s\nis  %s", path, was, after[path])
		}
	}
	if len(after) != len(before) {
		t.Errorf("something appeared outside: %v", after)
	}
}

// swapDirectories exchanges a directory and a link inside and uses a path
// through them meanwhile; and a path through what the host exchanges.
var swapDirectories = program("swap directories", func(in *inside, _ []string) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				in.works("exchange", unix.Renameat2(unix.AT_FDCWD, "d", unix.AT_FDCWD, "l", unix.RENAME_EXCHANGE))
			}
		}
	}()
	for range exchanges {
		for _, path := range []string{"d/f", "l/f", "host/f", "m/f"} {
			if data, err := os.ReadFile(path); err == nil && string(data) != "inside" {
				in.fail("read of %s: %q", path, data)
			}
			in.checks++
		}
		for _, path := range []string{"d/f", "l/f"} {
			if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
				f.WriteString("inside")
				f.Close()
			}
			os.Rename(path, "out/f")
			os.Rename("out/f", path)
			os.Chmod(path, 0o644)
		}
	}
	close(stop)
	<-done
})

package fusefs_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// manyFiles is a directory d of n small files, "content N" each.
func manyFiles(n int) tree {
	tr := tree{}
	for i := range n {
		tr[fmt.Sprintf("d/f%04d", i)] = fmt.Sprintf("content %d", i)
	}
	return tr
}

func TestReadersInOrderAreReadAheadFor(t *testing.T) {
	const n = 300
	v := mount(t, manyFiles(n), "**=write")
	v.names("d")
	for i := range n {
		if got, want := v.read(fmt.Sprintf("d/f%04d", i)), fmt.Sprintf("content %d", i); got != want {
			t.Fatalf("read %q, want %q", got, want)
		}
	}
	stats := v.Stats()
	if stats["read"] > n/4 || stats["store"] < n*3/4 {
		t.Errorf("%d files took %d READs and %d stores", n, stats["read"], stats["store"])
	}
}

func TestReadersOutOfOrderAreNotReadAheadFor(t *testing.T) {
	const n = 300
	v := mount(t, manyFiles(n), "**=write")
	v.names("d")
	for i := range n {
		v.read(fmt.Sprintf("d/f%04d", i*97%n))
	}
	if got := v.Stats()["store"]; got > n/10 {
		t.Errorf("%d stores", got)
	}
}

// TestNothingUnreadableIsStored reads files in order while a changing policy makes every
// second one unreadable. Then it looks for pages of unreadable files in the kernel's cache.
func TestNothingUnreadableIsStored(t *testing.T) {
	const n = 400
	strict := []string{"**=read", "/d/f*[13579]=view"}
	v := mount(t, manyFiles(n), strict...)
	v.guest("cat d/*[02468] >/dev/null")
	v.wantUncached(n, "f%04d")
	if v.Stats()["store"] == 0 {
		t.Error("nothing was stored at all")
	}

	v = mount(t, manyFiles(n), "**=read")
	v.names("d")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; i < n; i += 2 {
			_, _ = os.ReadFile(v.path(fmt.Sprintf("d/f%04d", i)))
		}
	}()
	for loose := false; ; loose = !loose {
		select {
		case <-done:
			v.SetPolicy(compile(t, strict...))
			v.wantUncached(n, "f%04d")
			return
		default:
		}
		if loose {
			v.SetPolicy(compile(t, "**=read"))
		} else {
			v.SetPolicy(compile(t, strict...))
		}
	}
}

// wantUncached fails for each odd file of d of which the kernel has a page. It opens them
// as root, to which mode bits do not apply, and calls mincore(2).
func (v *view) wantUncached(n int, format string) {
	v.t.Helper()
	if os.Geteuid() != 0 {
		v.t.Skip("needs to open what must not be read")
	}
	for i := 1; i < n; i += 2 {
		fd, err := unix.Open(v.path("d/"+fmt.Sprintf(format, i)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			v.t.Fatal(err)
		}
		m, err := unix.Mmap(fd, 0, 1, unix.PROT_READ, unix.MAP_SHARED)
		unix.Close(fd)
		if err != nil {
			v.t.Fatal(err)
		}
		var resident [1]byte
		err = mincore(m, resident[:])
		if uerr := unix.Munmap(m); uerr != nil {
			v.t.Fatal(uerr)
		}
		if err != nil {
			v.t.Fatal(err)
		}
		if resident[0]&1 != 0 {
			v.t.Errorf("a page of file %d is in the cache", i)
		}
	}
}

// TestWritersAreNeverOvertaken appends to files while another process reads them all in
// order, so that they are stored. Written data must be readable at once, and at the end.
func TestWritersAreNeverOvertaken(t *testing.T) {
	const n, rounds = 200, 6
	for round := range rounds {
		v := mount(t, manyFiles(n), "**=write")
		v.names("d")
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range n {
				_, _ = os.ReadFile(v.path(fmt.Sprintf("d/f%04d", i)))
			}
		})
		for _, from := range []int{round * 7, n/2 + round} {
			wg.Go(func() {
				for i := from; i < n; i += 3 {
					appendAndRead(t, v, fmt.Sprintf("d/f%04d", i))
				}
			})
		}
		wg.Wait()
		for i := range n {
			name := fmt.Sprintf("d/f%04d", i)
			if got, want := v.read(name), v.inDelta(name); got != want {
				t.Errorf("%s reads %q, the layer has %q", name, got, want)
			}
		}
	}
}

func appendAndRead(t *testing.T, v *view, name string) {
	f, err := os.OpenFile(v.path(name), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(" more"); err != nil {
		t.Error(err)
	}
	b := make([]byte, 64)
	if k, _ := f.ReadAt(b, 0); !strings.HasSuffix(string(b[:k]), " more") {
		t.Errorf("%s reads %q right after it was written", name, b[:k])
	}
}

// inDelta returns the layer's content of name.
func (v *view) inDelta(name string) string {
	v.t.Helper()
	f, _, err := v.layer.Open(vpath.Path("/"+name), false)
	if err != nil {
		v.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 256)
	n, err := f.ReadAt(b, 0)
	if err != nil {
		v.t.Fatal(err)
	}
	return string(b[:n])
}

// TestNothingHangsUnderInterrupts kills processes at random moments while the source and
// the policy change. Without a deadlock it ends.
func TestNothingHangsUnderInterrupts(t *testing.T) {
	v := mount(t, manyFiles(200), "**=write")
	tree{"sub/a": "1", "sub/b": "2"}.make(t, v.source)
	script := `cd "$0"; while :; do cat d/* >/dev/null; echo x >>d/f0001; mkdir -p n/m; : >n/m/$$; mv n/m n/o$$;
		ls -lR . >/dev/null; rm -rf n/o$$; ln d/f0002 l$$; rm -f l$$; cat none; find . -newer d >/dev/null; done`
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				cmd := exec.Command("/usr/bin/timeout", "-s", "KILL", "0.15", "/bin/sh", "-c", script, v.dir)
				cmd.Dir = "/"
				_ = cmd.Run()
			}
		})
	}
	loose, strict := compile(t, "**=write"), compile(t, "**=write", "/d/f01*=read", "**/none=none")
	for i, end := 0, time.Now().Add(3*time.Second); time.Now().Before(end); i++ {
		v.change(func(s string) error {
			tree{"d/new": fmt.Sprint(i), "sub/a": fmt.Sprint(i)}.make(t, s)
			return os.RemoveAll(fmt.Sprint(s, "/d/f010", i%10))
		})
		switch i % 3 {
		case 0:
			v.SetPolicy(strict)
		case 1:
			v.SetPolicy(loose)
		case 2:
			v.Invalidate("/d", "/sub/a")
		}
	}
	close(stop)
	wg.Wait()
	v.SetPolicy(loose)
	v.write("sub/a", "alive")
	if got := v.read("sub/a"); got != "alive" {
		t.Errorf("read %q", got)
	}
}

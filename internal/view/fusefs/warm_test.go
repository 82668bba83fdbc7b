package fusefs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestWarmPathCostsNoRoundTrip opens, reads, stats, lists and resolves twice, and counts
// the requests of the second time.
func TestWarmPathCostsNoRoundTrip(t *testing.T) {
	v := mount(t, tree{"d/a": "alpha", "d/b": "beta", "d/link": "-> a"}, "**=read")
	use := func() {
		if got, want := v.names("d"), "a b link"; got != want {
			t.Errorf("names = %q, want %q", got, want)
		}
		if got := v.read("d/a") + v.read("d/link"); got != "alphaalpha" {
			t.Errorf("read %q", got)
		}
		v.stat("d/a")
		v.stat("d/b")
		if target, err := os.Readlink(v.path("d/link")); err != nil || target != "a" {
			t.Errorf("readlink = %q, %v", target, err)
		}
		if _, err := os.Stat(v.path("d/absent")); !os.IsNotExist(err) {
			t.Errorf("stat absent: %v", err)
		}
	}
	use()
	use() // the first stat after a READ asks for the access time
	if got := v.requests(use); len(got) != 0 {
		t.Errorf("warm requests = %v, want none", got)
	}
}

func TestKernelAsksOpenFlushAndOpendirOnce(t *testing.T) {
	v := mount(t, tree{"a": "1", "b": "2", "d/c": "3"}, "**=write")
	for range 3 {
		v.read("a")
		v.read("b")
		v.names("d")
		v.names("")
		v.write("n", "x")
	}
	want := map[string]uint64{"open": 1, "flush": 1, "opendir": 1}
	got := map[string]uint64{}
	for k, n := range v.Stats() {
		if _, ok := want[k]; ok {
			got[k] = n
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestBlocksStayKnownAfterAWrite keeps the write-back cache off: with it, each stat after a
// close would send a request.
func TestBlocksStayKnownAfterAWrite(t *testing.T) {
	v := mount(t, nil, "**=write")
	v.write("f", strings.Repeat("x", 10000))
	if st := v.stat("f"); st.Blocks < 20 {
		t.Errorf("blocks = %d, want those of 10000 bytes", st.Blocks)
	}
	if got := v.requests(func() { v.stat("f"); v.stat("f") }); len(got) != 0 {
		t.Errorf("requests = %v, want none", got)
	}
}

func TestNoDescriptorLeaksThoughNoReleaseComes(t *testing.T) {
	v := mountSource(t, t.TempDir(), limitDescriptors(8), "**=write")
	before := openFiles(t)
	for i := range 100 {
		v.write(fmt.Sprint(i), "content")
		if got := v.read(fmt.Sprint(i)); got != "content" {
			t.Fatalf("read %q", got)
		}
	}
	if after := openFiles(t); after > before+16 {
		t.Errorf("%d descriptors after 100 files, %d before", after, before)
	}
	for i := range 100 {
		if got := v.read(fmt.Sprint(i)); got != "content" {
			t.Fatalf("read %q of a file whose descriptor was closed meanwhile", got)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestTruncatingOpenIsASetattr: O_TRUNC works without CAP_ATOMIC_O_TRUNC.
func TestTruncatingOpenIsASetattr(t *testing.T) {
	v := mount(t, tree{"f": "old content"}, "**=write")
	f, err := os.OpenFile(v.path("f"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if v.Stats()["setattr"] == 0 {
		t.Error("no SETATTR came")
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	if got := v.read("f"); got != "new" {
		t.Errorf("read %q", got)
	}
	if b, err := os.ReadFile(v.source + "/f"); err != nil || string(b) != "old content" {
		t.Errorf("the source holds %q, %v", b, err)
	}
}

func TestMappedWritesReachTheDelta(t *testing.T) {
	v := mount(t, tree{"f": "hello world"}, "**=write")
	v.role("map", v.path("f"), "HELLO") // not here: a page fault would stop Go's scheduler
	if got := v.inDelta("f"); got != "HELLO world" {
		t.Errorf("the delta holds %q", got)
	}
	if got := v.read("f"); got != "HELLO world" {
		t.Errorf("read %q", got)
	}
}

// writeMapped writes args[1] to the file args[0] through a shared mapping and
// exits: that everything has arrived by then takes no fsync.
func writeMapped(args []string) error {
	fd, err := unix.Open(args[0], unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m, err := unix.Mmap(fd, 0, len(args[1]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(m, args[1])
	if err := unix.Munmap(m); err != nil {
		return err
	}
	return unix.Close(fd)
}

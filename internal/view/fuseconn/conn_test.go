package fuseconn

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestMain(m *testing.M) {
	testenv.PrivateMounts()
	goleak.VerifyTestMain(m)
}

// fixture has only the files that onLookup knows, empty and with mode 0444. It answers only
// statfs and look-ups in the root.
type fixture struct {
	fuse.RawFileSystem
	onLookup func(name string) fuse.Status
	lookups  atomic.Int64
}

func (f *fixture) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	f.lookups.Add(1)
	if st := f.onLookup(name); !st.Ok() {
		return st
	}
	out.NodeId, out.Mode, out.Nlink, out.Size = fileNode, unix.S_IFREG|0o444, 1, 4
	out.EntryValid, out.AttrValid = 1<<30, 1<<30
	return fuse.OK
}

const fileNode = 7

func (f *fixture) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.Mode, out.Nlink, out.AttrValid = unix.S_IFDIR|0o755, 1, 1<<30
	if in.NodeId == fileNode {
		out.Mode, out.Size = unix.S_IFREG|0o444, 4
	}
	return fuse.OK
}

func (f *fixture) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.ENOSYS }

func (f *fixture) Read(_ <-chan struct{}, _ *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	return fuse.ReadResultData(append(buf[:0], "read"...)), fuse.OK
}

// mounted is a mounted fixture. Other processes access its files, because the test process
// cannot answer itself while it waits.
type mounted struct {
	*Conn
	dir string
}

func mount(t *testing.T, f *fixture) *mounted {
	t.Helper()
	testenv.FUSE(t)
	f.RawFileSystem = fuse.NewDefaultRawFileSystem()
	m := &mounted{dir: t.TempDir()}
	var err error
	m.Conn, err = Mount(m.dir, f, Options{Name: "fixture", Library: fuse.MountOptions{DisableXAttrs: true, ExplicitDataCacheControl: true}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		m.Serve()
		close(served)
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		<-served
		m.Close()
	})
	return m
}

// shell runs a script in the mount and returns what it prints.
func (m *mounted) shell(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$0" && `+script, m.dir).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestAnswersAreThoseOfTheFileSystem(t *testing.T) {
	m := mount(t, &fixture{onLookup: func(name string) fuse.Status {
		if name == "there" {
			return fuse.OK
		}
		return fuse.ENOENT
	}})
	if got, want := m.shell(t, "stat -c '%a %s' there; cat there; test -e absent || echo ', absent'"), "444 4\nread, absent"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHandlersThatWaitKeepNobodyWaiting makes more handlers wait than there are workers and
// spare readers, and ends them in reverse order.
func TestHandlersThatWaitKeepNobodyWaiting(t *testing.T) {
	const clients = 3 * maxWaiting
	for _, says := range []bool{true, false} {
		t.Run(fmt.Sprintf("says so: %t", says), func(t *testing.T) {
			var conn atomic.Pointer[Conn]
			var gates [clients]chan struct{}
			for i := range gates {
				gates[i] = make(chan struct{})
			}
			var arrived sync.WaitGroup
			arrived.Add(clients)
			m := mount(t, &fixture{onLookup: func(name string) fuse.Status {
				var i int
				if _, err := fmt.Sscanf(name, "wait%d", &i); err != nil {
					return fuse.ENOENT
				}
				if says {
					conn.Load().BeginBlocking()
				}
				arrived.Done()
				<-gates[i]
				return fuse.OK
			}})
			conn.Store(m.Conn)
			var ended [clients]chan error
			for i := range clients {
				cmd := exec.Command("stat", filepath.Join(m.dir, fmt.Sprint("wait", i)))
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended[i] = make(chan error, 1)
				go func() { ended[i] <- cmd.Wait() }()
			}
			arrived.Wait() // all handlers run at the same time
			m.shell(t, "test ! -e absent")
			for i := clients - 1; i >= 0; i-- {
				close(gates[i])
				if err := <-ended[i]; err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
}

func TestNotificationsReachTheKernel(t *testing.T) {
	f := &fixture{onLookup: func(string) fuse.Status { return fuse.OK }}
	m := mount(t, f)
	if got := m.shell(t, "cat file; cat file"); got != "readread" || f.lookups.Load() != 1 {
		t.Fatalf("read %q by %d look-ups, want a cached name", got, f.lookups.Load())
	}
	if st := m.InodeNotify(fileNode, 0, 0); !st.Ok() {
		t.Fatal(st)
	}
	if st := m.InodeNotifyStoreCache(fileNode, 0, []byte("told")); !st.Ok() {
		t.Fatal(st)
	}
	if got := m.shell(t, "cat file"); got != "told" {
		t.Errorf("read %q after a store, want what was stored", got)
	}
	if st := m.EntryNotify(fuse.FUSE_ROOT_ID, "file"); !st.Ok() {
		t.Fatal(st)
	}
	m.shell(t, "cat file")
	if got := f.lookups.Load(); got != 2 {
		t.Errorf("%d look-ups, want a second one once the name was dropped", got)
	}
	if st := m.InodeNotify(12345, 0, 0); st != fuse.ENOENT {
		t.Errorf("notifying of an unknown node: %v, want ENOENT", st)
	}
}

func TestTheWatchSleepsAndWakes(t *testing.T) {
	stuck := make(chan struct{})
	m := mount(t, &fixture{onLookup: func(name string) fuse.Status {
		if name == "stuck" {
			<-stuck
		}
		return fuse.ENOENT
	}})
	testenv.Eventually(t, "the watch sleeps", m.asleep.Load)
	first := exec.Command("stat", filepath.Join(m.dir, "stuck"))
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	m.shell(t, "test ! -e absent")
	close(stuck)
	_ = first.Wait() // it fails: the name is absent
}

func TestRefuseAnswersTheRequest(t *testing.T) {
	b, err := newBuffers()
	if err != nil {
		t.Fatal(err)
	}
	defer b.free()
	copy(b.in[uniqueOffset:], "\x01\x02\x03\x04\x05\x06\x07\x08")
	if got := b.refuse(inHeader-1, fuse.EIO); got != 0 {
		t.Errorf("a request without a header got an answer of %d bytes", got)
	}
	n := b.refuse(inHeader, fuse.EIO)
	want := []byte{16, 0, 0, 0, 0xfb, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8}
	if runtime.GOARCH == "amd64" && string(b.out[:n]) != string(want) {
		t.Errorf("refused with % x, want % x", b.out[:n], want)
	}
}

func TestSurplusReadersEnd(t *testing.T) {
	gate := make(chan struct{})
	var arrived sync.WaitGroup
	const clients = 2 * maxWaiting
	arrived.Add(clients)
	m := mount(t, &fixture{onLookup: func(name string) fuse.Status {
		if strings.HasPrefix(name, "wait") {
			arrived.Done()
			<-gate
		}
		return fuse.ENOENT
	}})
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { _ = exec.Command("stat", filepath.Join(m.dir, fmt.Sprint("wait", i))).Run() })
	}
	arrived.Wait()
	close(gate)
	all.Wait()
	testenv.Eventually(t, "the surplus readers have ended", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.readers <= maxWaiting+len(m.workers)
	})
}

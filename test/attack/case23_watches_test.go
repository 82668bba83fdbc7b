package attack_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A watch reports events of visible names in this sandbox. It reports no hidden names, no
// other sandboxes and no whole file system.
func TestWatchesTellOfNothingHidden(t *testing.T) {
	eachHiding(t, watchesTellOfNothingHidden)
}

func watchesTellOfNothingHidden(t *testing.T, h hiding) {
	s := harness.New(t, binary, map[string]string{"d/secret.pem": "secret", "d/f": "f", "d/vault.pem/k": "k"})
	other := harness.New(t, binary, nil)
	other.Source = s.Source
	d := s.Talk(watchAll, nil, append(h.flags("*.pem"), "--preset", "full-access")...)
	if got := d.Hear(); got != "watching" {
		t.Fatal(got)
	}
	// The host and another sandbox work on what is hidden here.
	s.Write("d/secret.pem", "changed")
	s.Write("d/new.pem", "new")
	s.Write("d/vault.pem/k", "changed")
	if err := os.Rename(filepath.Join(s.Source, "d/new.pem"), filepath.Join(s.Source, "d/renamed.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.Source, "d/renamed.pem")); err != nil {
		t.Fatal(err)
	}
	prints(t, other, "echo x > d/secret.pem; echo x > d/f; echo x > d/g; rm d/vault.pem/k; cat d/g", "x\n", "--preset", "full-access")
	// What it does itself ends what it is told.
	if got, want := d.Ask("make marker"), "marker"; got != want {
		t.Errorf("events told of %q, want %q", got, want)
	}
	if h == hidesOwn {
		// An own entry is a name like others, of which the host's file tells nothing.
		for _, name := range []string{"secret.pem", "absent.pem"} {
			if got := d.Ask("make " + name); got != name {
				t.Errorf("events told of %q, want %q", got, name)
			}
		}
		s.Write("d/secret.pem", "changed again")
		s.Write("d/absent.pem", "not absent any more")
		if err := os.Remove(filepath.Join(s.Source, "d/secret.pem")); err != nil {
			t.Fatal(err)
		}
		prints(t, other, "cat d/absent.pem; rm d/absent.pem", "not absent any more", "--preset", "full-access")
		if got := d.Ask("make another"); got != "another" {
			t.Errorf("events told of %q beside own entries, want %q", got, "another")
		}
	}
	if r := d.End(); r.Code != 0 {
		t.Error(r.Stderr)
	}
}

var watchAll = program("watch all", func(in *inside, _ []string) {
	for _, name := range []string{"d/secret.pem", "d/vault.pem", "d/absent.pem", "d/absent"} {
		in.errno("watch "+name, watched(name), unix.ENOENT)
	}
	for _, flags := range []uint{unix.FAN_CLASS_NOTIF, unix.FAN_CLASS_CONTENT, unix.FAN_CLASS_PRE_CONTENT, unix.FAN_REPORT_FID | unix.FAN_REPORT_DFID_NAME} {
		fd, err := unix.FanotifyInit(flags, unix.O_RDONLY)
		if err == nil { // for one's own files since Linux 5.13
			for _, scope := range []uint{unix.FAN_MARK_FILESYSTEM, unix.FAN_MARK_MOUNT, unix.FAN_MARK_INODE} {
				err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|scope, unix.FAN_OPEN|unix.FAN_CREATE|unix.FAN_ONDIR, unix.AT_FDCWD, "/")
				in.refused("fanotify mark", err, unix.EPERM, unix.EINVAL, unix.ENODEV, unix.EXDEV, unix.EOPNOTSUPP, unix.EACCES)
			}
			unix.Close(fd)
		}
		in.refused("fanotify", err, unix.EPERM, unix.ENOSYS, 0)
	}
	// A lease would let this process hold up who opens the file. It is on the
	// view's file, which nobody else opens.
	if f, err := unix.Open("d/f", unix.O_RDONLY, 0); err == nil {
		_, err := unix.FcntlInt(uintptr(f), unix.F_SETLEASE, unix.F_RDLCK)
		in.refused("lease", err, 0, unix.EINVAL, unix.EACCES, unix.EAGAIN)
		unix.Close(f)
	}

	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	in.works("inotify", err)
	for _, name := range []string{".", "d", "d/f"} {
		_, err := unix.InotifyAddWatch(fd, name, unix.IN_ALL_EVENTS)
		in.works("watch "+name, err)
	}
	fmt.Println("watching")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		_, name, _ := strings.Cut(lines.Text(), " ")
		in.works("make", os.WriteFile(filepath.Join("d", name), nil, 0o644))
		fmt.Println(strings.Join(eventNames(in, fd), " "))
	}
})

// eventNames returns the names that the events so far tell of, each once.
// What has no name is an event of a watched thing itself.
func eventNames(in *inside, fd int) []string {
	buf := make([]byte, 1<<16)
	n, err := unix.Read(fd, buf)
	in.works("read events", err)
	var names []string
	for at := 0; at < n; {
		// struct inotify_event: wd, mask, cookie, len, name (inotify(7)).
		length := int(buf[at+12]) | int(buf[at+13])<<8
		name, _, _ := strings.Cut(string(buf[at+16:at+16+length]), "\x00")
		if length == 0 {
			name = "event " + hex.EncodeToString(buf[at+4:at+8])
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		at += 16 + length
	}
	return names
}

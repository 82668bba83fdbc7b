package fusefs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// TestPermissionsAreInTheModeBits checks the mode bits that stat(2) shows.
func TestPermissionsAreInTheModeBits(t *testing.T) {
	v := mount(t, tree{"v": "1", "r": "2", "w": "3", "n": "4", "dir/r": "5", "wdir/w": "6", "script": "7", "tr/x/y": "8"},
		"/v=view", "/r=read", "/w=write", "/dir/**=read", "/wdir/**=write", "/script=read", "/tr/x/y=read", "/future/new=write")
	if err := os.Chmod(v.source+"/script", 0o6755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		want       uint32
	}{
		{"a view file has no bits", "v", unix.S_IFREG},
		{"a read file has no w", "r", unix.S_IFREG | 0o444},
		{"a write file has its own", "w", unix.S_IFREG | 0o644},
		{"a read script keeps x and loses setuid", "script", unix.S_IFREG | 0o555},
		{"a directory of read files has no w", "dir", unix.S_IFDIR | 0o555},
		{"a directory of write files has its own", "wdir", unix.S_IFDIR | 0o755},
		{"a traversable directory is listed only", "tr", unix.S_IFDIR | 0o555},
		{"the root has w since something in it could be made", "", unix.S_IFDIR | 0o755},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := v.stat(tt.path).Mode; got != tt.want {
				t.Errorf("mode of %q = %o, want %o", tt.path, got, tt.want)
			}
		})
	}
	if got, want := v.names(""), "dir r script tr v w wdir"; got != want {
		t.Errorf("names = %q, want %q", got, want)
	}
}

// TestEveryOperationAnswersByPermission checks the result of each operation for each
// permission (docs/policy.md) in the confined process.
func TestEveryOperationAnswersByPermission(t *testing.T) {
	const (
		ok     = ""
		noent  = "No such file or directory"
		acces  = "Permission denied"
		exists = "File exists"
	)
	// What the command prints for each of none, view, read, write.
	tests := []struct {
		name, script     string
		none, view, read string
		write            string
	}{
		{"stat", "stat -c '' F", noent, ok, ok, ok},
		{"open to read", "cat F >/dev/null", noent, acces, ok, ok},
		{"open to write", "true 2>&1 >>F", acces, acces, acces, ok},
		{"exec", "env ./F", noent, acces, ok, ok},
		{"chmod", "chmod 600 F", noent, acces, acces, ok},
		{"touch", "touch -c -d 2020-01-01 F && test -e F || echo No such file or directory", noent, acces, acces, ok},
		{"truncate", "truncate -c -s 0 F && test -e F || echo No such file or directory", noent, acces, acces, ok},
		{"unlink", "rm -f F && test -z \"$(ls F 2>/dev/null)\" || echo left", ok, acces, acces, ok},
		{"rename away", "mv F w/other", noent, acces, acces, ok},
		{"rename onto", "touch w/mine && mv -f w/mine F", acces, acces, acces, ok},
		{"link from", "ln F w/hard", noent, acces, acces, ok},
		{"mkdir onto", "mkdir F", acces, exists, exists, exists},
		{"symlink onto", "ln -s x F", acces, exists, exists, exists},
		{"mkfifo onto", "mkfifo F", acces, exists, exists, exists},
	}
	for _, tt := range tests {
		for class, want := range map[string]string{"none": tt.none, "view": tt.view, "read": tt.read, "write": tt.write} {
			t.Run(tt.name+" of a "+class+" file", func(t *testing.T) {
				v := mount(t, tree{"d/f": "#!/bin/sh\n", "w/": ""}, "/d/f="+class, "/d/writable=write", "/w/**=write")
				if err := os.Chmod(v.source+"/d/f", 0o755); err != nil {
					t.Fatal(err)
				}
				got := v.guest(strings.ReplaceAll(tt.script, "F", "d/f"))
				if want == ok && got != "" || !strings.Contains(got, want) {
					t.Errorf("printed %q, want %q", got, want)
				}
				if b, err := os.ReadFile(v.source + "/d/f"); err != nil || string(b) != "#!/bin/sh\n" {
					t.Errorf("the source holds %q, %v", b, err)
				}
			})
		}
	}
}

// TestHiddenAndAbsentAnswerAlike: no system call distinguishes a hidden name from an absent
// one.
func TestHiddenAndAbsentAnswerAlike(t *testing.T) {
	v := mount(t, tree{"secret": "x", "dir/secret": "y", "w/": ""}, "**=write", "**/secret=none", "**/absent=none")
	for _, script := range []string{
		"stat -c '' N", "cat N", "ls N", "mkdir N", "ln -s x N", "touch N", "echo x > N", "rm N", "rmdir N", "mv N w/",
		"touch w/f && mv w/f N", "ln N w/l", "touch w/g && ln w/g N", "readlink N", "mkfifo N", "[ -e N ]; echo $?", "cd N",
		"chmod 600 N", "truncate -s 1 N", "./N",
	} {
		t.Run(script, func(t *testing.T) {
			there := strings.ReplaceAll(v.guest(strings.ReplaceAll(script, "N", "secret")), "secret", "NAME")
			not := strings.ReplaceAll(v.guest(strings.ReplaceAll(script, "N", "absent")), "absent", "NAME")
			if there != not {
				t.Errorf("hidden: %q\nabsent: %q", there, not)
			}
		})
	}
}

func TestDirectoriesTellNothingOfHiddenEntries(t *testing.T) {
	big := tree{"empty/": "", "full/shown": "1", "bare/shown": "1"}
	for i := range 300 {
		big[fmt.Sprintf("full/hidden%d/x", i)] = strings.Repeat("y", 100)
	}
	v := mount(t, big, "**=write", "**/hidden*=none")
	full, bare := v.stat("full"), v.stat("bare")
	if full.Size != bare.Size || full.Blocks != bare.Blocks || full.Nlink != 1 || bare.Nlink != 1 {
		t.Errorf("full shows %d bytes, %d blocks, nlink %d; bare %d, %d, %d",
			full.Size, full.Blocks, full.Nlink, bare.Size, bare.Blocks, bare.Nlink)
	}
	if got := v.names("full"); got != "shown" {
		t.Errorf("names = %q", got)
	}
	v.names("bare")
	if err := os.Mkdir(v.source+"/full/hidden-new", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.source+"/bare/visible", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the visible name shows", func() bool { return v.names("bare") == "shown visible" })
	if after := v.stat("full"); after.Mtim != full.Mtim || after.Ctim != full.Ctim {
		t.Error("the time moved with a hidden name")
	}
	if after := v.stat("bare"); after.Mtim == bare.Mtim {
		t.Error("the time did not move with a visible name")
	}
}

func TestTraversableDirectoriesAreMadeOnTheWay(t *testing.T) {
	v := mount(t, nil, "/a/b/c=write", "/x/**=none", "/x/y/z=write")
	if got := v.guest("mkdir a a/b && echo 1 > a/b/c && cat a/b/c"); got != "1" {
		t.Errorf("printed %q", got)
	}
	if got := v.guest("mkdir a/other"); !strings.Contains(got, "Permission denied") {
		t.Errorf("mkdir of what no rule needs: %q", got)
	}
	if got := v.guest("mkdir x"); !strings.Contains(got, "Permission denied") {
		t.Errorf("mkdir where a rule says none: %q", got)
	}
}

func TestRmdirOfADirectoryWithHiddenChildrenOnly(t *testing.T) {
	v := mount(t, tree{"d/hidden": "1", "d/shown": "2", "e/hidden": "1", "e/tr/deep/w": "3"},
		"**=write", "**/hidden=none", "/e/tr/**=none")
	if got := v.guest("rmdir d"); !strings.Contains(got, "not empty") {
		t.Errorf("rmdir of a directory that shows a file: %q", got)
	}
	if got := v.guest("rm d/shown && rmdir d e && mkdir d && ls -A d"); got != "" {
		t.Errorf("printed %q", got)
	}
	if b, err := os.ReadFile(v.source + "/d/hidden"); err != nil || string(b) != "1" {
		t.Errorf("the source holds %q, %v", b, err)
	}
}

// TestSecondWall reads and writes through descriptors that were opened before the policy
// became stricter, when the kernel checked the mode bits.
func TestSecondWall(t *testing.T) {
	v := mount(t, tree{"f": strings.Repeat("secret ", 2000), "g": "writable", "l": "-> f"}, "**=write")
	f, err := os.OpenFile(v.path("f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := os.OpenFile(v.path("g"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := f.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	v.SetPolicy(compile(t, "**=view"))
	buf := make([]byte, 10)
	attempts := map[string]func() error{
		"read":      func() error { _, err := f.ReadAt(buf, 0); return err },
		"write":     func() error { _, err := f.WriteAt([]byte("x"), 0); return err },
		"truncate":  func() error { return f.Truncate(0) },
		"fallocate": func() error { return unix.Fallocate(int(f.Fd()), 0, 0, 99999) },
		"seek data": func() error { _, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA); return err },
		"chmod":     func() error { return f.Chmod(0o777) },
		"ioctl":     func() error { _, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); return err },
		"copy":      func() error { _, err := unix.CopyFileRange(int(f.Fd()), nil, int(g.Fd()), nil, 5, 0); return err },
		"readlink":  func() error { _, err := os.Readlink(v.path("l")); return err },
		"link":      func() error { return os.Link(v.path("f"), v.path("hard")) },
	}
	for name, try := range attempts {
		t.Run(name, func(t *testing.T) {
			if err := try(); !os.IsPermission(err) {
				t.Errorf("error = %v, want permission denied", err)
			}
		})
	}
}

func TestSetPolicyTakesAndGivesAtOnce(t *testing.T) {
	v := mount(t, tree{"a/f": "one", "b/f": "two"}, "**=write", "/b/**=none")
	if got := v.guest("cat a/f; ls; cat b/f"); got != "onea\ncat: b/f: No such file or directory" {
		t.Errorf("before: %q", got)
	}
	v.SetPolicy(compile(t, "**=read", "/a/**=none"))
	if got := v.guest("cat b/f; ls; cat a/f"); got != "twob\ncat: a/f: No such file or directory" {
		t.Errorf("after: %q", got)
	}
	v.SetPolicy(compile(t, "**=view"))
	if got := v.guest("ls a b; cat b/f"); got != "a:\nf\n\nb:\nf\ncat: b/f: Permission denied" {
		t.Errorf("in the end: %q", got)
	}
}

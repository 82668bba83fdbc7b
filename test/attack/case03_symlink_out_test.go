package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// Only the kernel follows a symbolic link, for the sandbox's processes and within their
// root. agentfense never follows one: neither while the sandbox runs nor in the verbs that
// read and apply its changes.
func TestSymlinksLeadNowhereOutside(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		eachHiding(t, func(t *testing.T, h hiding) { symlinksLeadNowhereOutside(t, h, who...) })
	})
}

func symlinksLeadNowhereOutside(t *testing.T, h hiding, who ...harness.Option) {
	s := harness.New(t, binary, map[string]string{"secret.pem": "hidden", "read/kept": "kept", "write/k.pem": "hidden"}, who...)
	host := t.TempDir() // not in the sandbox at all
	for path, content := range map[string]string{"shadow": "host's", "dir/file": "host's"} {
		full := filepath.Join(host, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	// The user's own link out of the source is one that the sandbox can
	// read and not follow.
	if err := os.Symlink(host, filepath.Join(s.Source, "planted")); err != nil {
		t.Fatal(err)
	}
	outside, err := harness.Tree(host)
	if err != nil {
		t.Fatal(err)
	}
	untouched := s.Untouched()
	passes(t, s, followLinks, []string{host, string(h)}, append(h.flags("*.pem"), "--preset", "read-only", "--write", "write/")...)
	untouched()
	for _, path := range []string{"planted/shadow", "write/to shadow", "write/to hidden", "write/dir/file"} {
		if r := s.Agentfense("files", "cat", s.Name, path); r.Code == 0 || strings.Contains(r.Stdout, "host's") {
			t.Errorf("files cat %s: exit code %d, %q", path, r.Code, r.Stdout)
		}
	}
	agentfense(t, s, "diff", s.Name)
	agentfense(t, s, "apply", s.Name)
	if got := s.Read("write/k.pem"); got != "hidden" {
		t.Errorf("applied, the hidden target of a link holds %q", got)
	}
	if target, err := os.Readlink(filepath.Join(s.Source, "write/dir")); err != nil || target != host+"/dir" {
		t.Errorf("the link that was applied leads to %q, %v", target, err)
	}
	// Applied, the link is on the host. A file below it is still not ours.
	prints(t, s, "rm write/dir && mkdir write/dir && echo mine > write/dir/file && cat write/dir/file", "mine\n")
	if err := os.RemoveAll(filepath.Join(s.Source, "write/dir")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(host+"/dir", filepath.Join(s.Source, "write/dir")); err != nil {
		t.Fatal(err)
	}
	if r := s.Agentfense("apply", s.Name); r.Code == 0 {
		t.Errorf("apply through a link that was planted meanwhile: %s", r.Stdout)
	}
	now, err := harness.Tree(host)
	if err != nil {
		t.Fatal(err)
	}
	for path, was := range outside {
		if now[path] != was {
			t.Errorf("%s changed:\nwas %s\nis  %s", path, was, now[path])
		}
	}
	if len(now) != len(outside) {
		t.Errorf("something appeared outside: %v", now)
	}
}

var followLinks = program("follow links", func(in *inside, args []string) {
	host := args[0]
	for link, target := range map[string]string{
		"write/to shadow": host + "/shadow",
		"write/to root":   "/proc/self/root" + host + "/shadow",
		"write/to init":   "/proc/1/root" + host + "/shadow",
		"write/to cwd":    "/proc/1/cwd" + host + "/shadow",
		"write/up":        strings.Repeat("../", 60) + host[1:] + "/shadow",
		"write/dir":       host + "/dir",
		"write/to hidden": "../secret.pem",
		"write/to absent": "../absent.pem",
		"write/to k":      "k.pem",
		"write/to none":   "none.pem",
		"write/loop":      "loop",
	} {
		in.works("symlink", unix.Symlink(target, link))
		want := unix.ENOENT
		switch {
		case strings.Contains(target, "/proc/1/"):
			want = unix.EACCES // PID 1 lets nobody look (TestProcShowsTheSandboxOnly)
		case link == "write/loop":
			want = unix.ELOOP
		}
		for name, flags := range map[string]int{
			"read": unix.O_RDONLY, "write": unix.O_WRONLY, "truncate": unix.O_WRONLY | unix.O_TRUNC, "append": unix.O_RDWR | unix.O_APPEND,
		} {
			in.errno(name+" "+link, opened(link, flags), want)
		}
		in.errno("stat "+link, unix.Stat(link, new(unix.Stat_t)), want)
		in.errno("chmod "+link, unix.Chmod(link, 0o777), want)
		got, err := os.Readlink(link)
		in.works("readlink", err)
		in.is("target of "+link, got, target)
	}
	in.errno("create through a link", opened("write/dir/new", unix.O_CREAT|unix.O_WRONLY), unix.ENOENT)
	in.errno("create at a hidden target", opened("write/to hidden", unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
	in.errno("create at an absent target", opened("write/to absent", unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
	for _, link := range []string{"write/to k", "write/to none"} {
		in.errno("create by "+link, opened(link, unix.O_CREAT|unix.O_WRONLY), hiding(args[1]).making())
		if hiding(args[1]) == hidesOwn {
			in.works("write by "+link, os.WriteFile(link, []byte("mine"), 0o644))
		}
	}
	in.errno("through the user's link", opened("planted/shadow", unix.O_RDONLY), unix.ENOENT)
	in.errno("list the user's link", opened("planted/", unix.O_RDONLY|unix.O_DIRECTORY), unix.ENOENT)
	target, err := os.Readlink("planted")
	in.works("readlink planted", err)
	in.is("target of planted", target, host)
	// A link within the view works, and changes no permission.
	in.works("symlink", unix.Symlink("../read/kept", "write/to kept"))
	in.errno("read through a link", opened("write/to kept", unix.O_RDONLY), 0)
	in.errno("write through a link", opened("write/to kept", unix.O_WRONLY), unix.EACCES)
	in.works("unlink", unix.Unlink("write/to kept"))
})

package attack_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A read-only file cannot be changed: neither its content, nor its attributes, nor its
// name; not by path, not by descriptor, and not through /proc.
func TestReadFilesStayAsTheyAre(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"r/f": "read", "r/d/x": "x", "v/f": "view", "w/f": "write"}, who...)
		untouched := s.Untouched()
		passes(t, s, changeReadFiles, nil, "--preset", "read-only", "--write", "/w/", "--view", "/v/")
		untouched()
		operations := map[string]bool{}
		for _, d := range s.Denials() {
			if d.Path == "/r/f" {
				operations[d.Operation] = true
				if d.Permission != "read" || d.Rule == "" {
					t.Errorf("the refusal does not tell the rule: %+v", d)
				}
			}
		}
		if len(operations) == 0 {
			t.Error("no refusal at /r/f is in the audit log")
		}
		if status := agentfense(t, s, "diff", s.Name, "--name-status"); status != "" {
			t.Errorf("changes:\n%s", status)
		}
	})
}

var changeReadFiles = program("change read files", func(in *inside, _ []string) {
	for _, name := range []string{"r/f", "v/f"} {
		changeByPath(in, name)
		changeByDescriptor(in, name)
	}
	for _, dir := range []string{"r", "r/d", "."} {
		in.errno("create in "+dir, opened(dir+"/new", unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
		in.errno("mkdir in "+dir, unix.Mkdir(dir+"/new", 0o755), unix.EACCES)
		in.errno("symlink in "+dir, unix.Symlink("x", dir+"/new"), unix.EACCES)
		in.errno("mkfifo in "+dir, unix.Mkfifo(dir+"/new", 0o644), unix.EACCES)
		in.errno("bind in "+dir, withSocket(dir+"/new", unix.Bind), unix.EACCES)
		in.errno("chmod "+dir, unix.Chmod(dir, 0o777), unix.EACCES)
		in.errno("utimes "+dir, unix.UtimesNanoAt(unix.AT_FDCWD, dir, nil, 0), unix.EACCES)
	}
	in.errno("rmdir", unix.Rmdir("r/d"), unix.EACCES)
	in.errno("unlink in a directory", unix.Unlink("r/d/x"), unix.EACCES)
	in.errno("rename a directory", unix.Rename("r/d", "w/d"), unix.EACCES)
	data, err := os.ReadFile("r/f")
	in.works("read", err)
	in.is("content", string(data), "read")
})

func changeByPath(in *inside, name string) {
	var before, after unix.Stat_t
	in.works("stat", unix.Stat(name, &before))
	past := []unix.Timespec{{Sec: 1}, {Sec: 1}}
	for what, err := range map[string]error{
		"append":       opened(name, unix.O_WRONLY|unix.O_APPEND),
		"truncate":     unix.Truncate(name, 0),
		"extend":       unix.Truncate(name, 1<<20),
		"chmod":        unix.Chmod(name, 0o666),
		"chmod 0":      unix.Chmod(name, 0),
		"fchmodat2":    unix.Fchmodat(unix.AT_FDCWD, name, 0o666, unix.AT_SYMLINK_NOFOLLOW),
		"utimes":       unix.UtimesNanoAt(unix.AT_FDCWD, name, past, 0),
		"touch":        unix.UtimesNanoAt(unix.AT_FDCWD, name, nil, 0),
		"unlink":       unix.Unlink(name),
		"rename away":  unix.Rename(name, "w/taken"),
		"rename over":  unix.Rename("w/f", name),
		"exchange":     unix.Renameat2(unix.AT_FDCWD, "w/f", unix.AT_FDCWD, name, unix.RENAME_EXCHANGE),
		"link away":    unix.Link(name, "w/linked"),
		"access write": unix.Access(name, unix.W_OK),
	} {
		in.errno(what+" "+name, err, unix.EACCES)
	}
	for _, id := range []int{0, 1, 1000, 65534} {
		if id != int(before.Uid) {
			in.refused("chown "+name, unix.Chown(name, id, -1), unix.EACCES, unix.EPERM, unix.EINVAL)
		}
	}
	in.errno("chown to the owner", unix.Chown(name, int(before.Uid), int(before.Gid)), unix.EACCES)
	in.works("stat", unix.Stat(name, &after))
	before.Atim, after.Atim = unix.Timespec{}, unix.Timespec{}
	in.is("attributes of "+name, after, before)
}

func changeByDescriptor(in *inside, name string) {
	flags := map[string]int{"O_PATH": unix.O_PATH}
	if unix.Access(name, unix.R_OK) == nil {
		flags["O_RDONLY"] = unix.O_RDONLY
	}
	for kind, flag := range flags {
		fd, err := unix.Open(name, flag, 0)
		in.works("open "+name, err)
		for _, again := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_TRUNC, unix.O_WRONLY | unix.O_APPEND} {
			in.errno("open "+kind+" again", opened(procFD(fd), again), unix.EACCES)
			in.errno("by /dev/fd", opened("/dev/fd"+procFD(fd)[len("/proc/self/fd"):], again), unix.EACCES)
		}
		in.errno("truncate by /proc", unix.Truncate(procFD(fd), 0), unix.EACCES)
		in.errno("chmod by /proc", unix.Chmod(procFD(fd), 0o666), unix.EACCES)
		in.errno("utimes by /proc", unix.UtimesNanoAt(unix.AT_FDCWD, procFD(fd), nil, 0), unix.EACCES)
		in.refused("fchmod", unix.Fchmod(fd, 0o666), unix.EACCES, unix.EBADF)
		_, err = unix.Write(fd, []byte("x"))
		in.errno("write "+kind, err, unix.EBADF)
		if kind == "O_RDONLY" {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_RDWR|unix.O_APPEND)
			in.works("F_SETFL", err)
			_, err = unix.Write(fd, []byte("x"))
			in.errno("write after F_SETFL", err, unix.EBADF)
		}
		unix.Close(fd)
	}
}

// With a flag that makes a directory read-only inside a writable one, nothing can be
// created in it, not even a directory.
func TestNothingIsMadeInADirectoryThatAFlagMakesRead(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"closed/f": "x", "open/f": "x"})
	prints(t, s, "mkdir open/d && ! mkdir closed/d 2>/dev/null && ! mkdir -p closed/d/e 2>/dev/null && ls closed", "f\n",
		"--preset", "full-access", "--read", "closed/")
}

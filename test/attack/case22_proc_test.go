package attack_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/test/harness"
)

// /proc shows the sandbox's own processes, leads to the sandbox's own files
// and names nothing of the host.
func TestProcShowsTheSandboxOnly(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		eachHiding(t, func(t *testing.T, h hiding) { procShowsTheSandboxOnly(t, h, who...) })
	})
}

func procShowsTheSandboxOnly(t *testing.T, h hiding, who ...harness.Option) {
	s := harness.New(t, binary, map[string]string{"f": "f", "secret.pem": "secret"}, who...)
	host := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(host, []byte("the host's"), 0o666); err != nil {
		t.Fatal(err)
	}
	untouched := s.Untouched()
	passes(t, s, walkProc, []string{host, s.Home, strconv.Itoa(os.Getpid()), s.Source, string(h)}, append(h.flags("*.pem"), "--preset", "full-access")...)
	untouched()
}

var walkProc = program("walk proc", func(in *inside, args []string) {
	host, home, pid, workspace := args[0], args[1], args[2], args[3]
	otherProcesses(in, pid)
	initProcess(in)
	// The pivots of a process's own lead to the sandbox's root.
	for _, pivot := range []string{
		"/proc/self/root", "/proc/thread-self/root", "/proc/self/task/" + strconv.Itoa(unix.Gettid()) + "/root",
		"/proc/self/cwd/" + strings.Repeat("../", 60), "/proc/self/root/proc/self/root",
	} {
		in.errno("the host's file by "+pivot, opened(pivot+host, unix.O_RDONLY), unix.ENOENT)
		in.errno("the state by "+pivot, opened(pivot+home, unix.O_RDONLY), unix.ENOENT)
		for _, name := range []string{"/secret.pem", "/absent.pem"} {
			hidden := pivot + workspace + name
			in.errno("a hidden file by "+pivot, opened(hidden, unix.O_RDONLY), unix.ENOENT)
			in.errno("make a hidden file by "+pivot, opened(hidden, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY), hiding(args[4]).making())
			if hiding(args[4]) == hidesOwn {
				in.works("remove it by its plain path", os.Remove(workspace+name))
			}
		}
	}
	in.errno("a hidden file by cwd", opened("/proc/self/cwd/secret.pem", unix.O_RDONLY), unix.ENOENT)
	fd, err := unix.Open("f", unix.O_RDONLY, 0)
	in.works("open", err)
	in.errno("past a file by its descriptor", opened(procFD(fd)+"/../secret.pem", unix.O_RDONLY), unix.ENOTDIR)

	// What /proc tells of mounts and memory names the workspace and nothing else of the host. What
	// takes bubblewrap's place is mounted where programs look for it.
	shim := strings.NewReplacer(" "+isolate.ShimSocket+" ", " ", " /usr/bin/bwrap ", " ")
	for _, file := range []string{"self/mountinfo", "self/mounts", "self/mountstats", "self/maps", "self/environ", "self/cgroup", "self/smaps", "1/cmdline", "1/comm", "mounts"} {
		data, err := os.ReadFile("/proc/" + file)
		in.works("read "+file, err)
		for _, name := range []string{home, filepath.Dir(host), "bwrap", "sandboxes"} {
			in.is(file+" names "+name, strings.Contains(shim.Replace(string(data)), name), false)
		}
	}
	maps, err := os.ReadDir("/proc/self/map_files")
	if err == nil {
		for _, m := range maps {
			target, err := os.Readlink("/proc/self/map_files/" + m.Name())
			in.is("a mapping leads to "+target, err == nil && strings.HasPrefix(target, home), false)
		}
	}
	for _, file := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register",
		"/proc/self/oom_score_adj_of_host", "/proc/kcore", "/proc/kmem", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent",
	} {
		in.refused("write "+file, opened(file, unix.O_WRONLY), unix.EACCES, unix.EPERM, unix.EROFS, unix.ENOENT)
	}
})

// otherProcesses sees none but its own: its parent's parent is PID 1's.
func otherProcesses(in *inside, hostPID string) {
	entries, err := os.ReadDir("/proc")
	in.works("list /proc", err)
	seen := 0
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		seen++
		status, err := os.ReadFile("/proc/" + e.Name() + "/status")
		in.works("status", err)
		_, ns, _ := strings.Cut(string(status), "\nNSpid:")
		ns, _, _ = strings.Cut(ns, "\n")
		in.is("process "+e.Name()+" is of this namespace", strings.Fields(ns), []string{e.Name()})
		in.is("process "+e.Name()+" is few", pid < 100, true)
	}
	in.is("processes seen", seen >= 1 && seen <= 5, true)
	if n, _ := strconv.Atoi(hostPID); n > 100 {
		in.errno("the host's process", unix.Lstat("/proc/"+hostPID, new(unix.Stat_t)), unix.ENOENT)
		in.errno("signal the host's process", unix.Kill(n, 0), unix.ESRCH)
	}
}

// initProcess tries what PID 1 holds open: it is ours and lets nobody look.
func initProcess(in *inside) {
	for _, link := range []string{"root", "cwd", "exe", "fd/0", "fd/3", "ns/mnt", "ns/pid"} {
		_, err := os.Readlink("/proc/1/" + link)
		in.refused("readlink /proc/1/"+link, err, unix.EACCES, unix.EPERM, unix.ENOENT)
		in.refused("open /proc/1/"+link, opened("/proc/1/"+link, unix.O_RDONLY), unix.EACCES, unix.EPERM, unix.ENOENT)
	}
	for _, file := range []string{"mem", "environ", "maps", "auxv", "stack", "syscall", "pagemap", "root/etc/passwd"} {
		err := opened("/proc/1/"+file, unix.O_RDONLY)
		if err == nil {
			_, err = os.ReadFile("/proc/1/" + file)
		}
		in.refused("read /proc/1/"+file, err, unix.EACCES, unix.EPERM, unix.ENOENT, unix.EIO)
	}
	// Where the numbers of its descriptors can be listed, they lead nowhere.
	for _, dir := range []string{"fd", "map_files", "root", "cwd"} {
		entries, _ := os.ReadDir("/proc/1/" + dir)
		for _, e := range entries {
			path := "/proc/1/" + dir + "/" + e.Name()
			_, err := os.Readlink(path)
			in.refused("readlink "+path, err, unix.EACCES, unix.EPERM)
			in.refused("open "+path, opened(path, unix.O_PATH), unix.EACCES, unix.EPERM)
		}
	}
}

package attack_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// A known entry of the kernel's files is readable inside, and why it may be.
type known struct{ pattern, reason string }

// knownFiles are all the files below /proc, but for processes, and below /sys
// from which anything can be read inside. A pattern is path.Match's, or ends in
// "/**" for all that is below.
var knownFiles = []known{
	{"/proc/cpuinfo", "the processor says the same by its own instruction"},
	{"/proc/meminfo", "sizes and use of memory, as sysinfo(2) tells"},
	{"/proc/vmstat", "counts of the memory manager"},
	{"/proc/zoneinfo", "the memory manager's zones"},
	{"/proc/buddyinfo", "free memory by size of block"},
	{"/proc/stat", "processor time; the time of the start follows from CLOCK_BOOTTIME"},
	{"/proc/uptime", "time since the start, as CLOCK_BOOTTIME tells"},
	{"/proc/loadavg", "load, as sysinfo(2) tells"},
	{"/proc/pressure/*", "load"},
	{"/proc/softirqs", "counts for each processor"},
	{"/proc/schedstat", "counts for each processor"},
	{"/proc/version", "the kernel, as uname(2) tells"},
	{"/proc/version_signature", "the kernel's package"},
	{"/proc/config.gz", "how the kernel was built"},
	{"/proc/cgroups", "controllers and how many groups there are"},
	{"/proc/consoles", "kinds of terminals the kernel prints to"},
	{"/proc/crypto", "the kernel's ciphers"},
	{"/proc/devices", "the kernel's drivers, without what they drive"},
	{"/proc/misc", "the kernel's drivers, without what they drive"},
	{"/proc/dma", "lines of a bus that is no more"},
	{"/proc/execdomains", "one line for every Linux"},
	{"/proc/filesystems", "kinds of file systems"},
	{"/proc/tty/*", "kinds of terminals"},
	{"/proc/sysvipc/*", "the sandbox's own IPC namespace"},

	{"/proc/sys/abi/*", "settings of the kernel's interfaces"},
	{"/proc/sys/debug/*", "settings of the kernel's messages"},
	{"/proc/sys/fs/*", "settings and counts of open files"},
	{"/proc/sys/fs/*/*", "settings of notifications, queues and kinds of file systems"},
	{"/proc/sys/kernel/*", "settings of the kernel; names of host and domain are the sandbox's own"},
	{"/proc/sys/kernel/random/boot_id", "made for the sandbox: the host's is among the names that must not show"},
	{"/proc/sys/kernel/random/entropy_avail", "a constant since Linux 5.18"},
	{"/proc/sys/kernel/random/poolsize", "a constant"},
	{"/proc/sys/kernel/random/urandom_min_reseed_secs", "a constant"},
	{"/proc/sys/kernel/random/write_wakeup_threshold", "a constant"},
	{"/proc/sys/kernel/random/uuid", "another at each reading"},
	{"/proc/sys/kernel/keys/*", "bounds of keyrings"},
	{"/proc/sys/kernel/pty/*", "bounds of terminals"},
	{"/proc/sys/kernel/seccomp/*", "what filters can do"},
	{"/proc/sys/kernel/yama/*", "who may trace whom"},
	{"/proc/sys/kernel/firmware_config/*", "how drivers load their firmware"},
	{"/proc/sys/kernel/usermodehelper/*", "capabilities of the kernel's helpers"},
	{"/proc/sys/kernel/sched_domain/**", "settings of the scheduler"},
	{"/proc/sys/net/**", "the sandbox's own network namespace"},
	{"/proc/sys/user/*", "bounds of namespaces"},
	{"/proc/sys/vm/*", "settings of the memory manager"},

	{"/sys/devices/system/cpu/**", "processors, their caches and speeds"},
	{"/sys/devices/system/node/**", "which memory is near which processor"},
	{"/sys/devices/system/memory/**", "blocks of memory"},
	{"/sys/fs/cgroup/**", "the sandbox's own group"},
	{"/sys/kernel/mm/**", "settings of the memory manager"},
}

func isKnown(file string) bool {
	return slices.ContainsFunc(knownFiles, func(k known) bool {
		if dir, below := strings.CutSuffix(k.pattern, "**"); below {
			return strings.HasPrefix(file, dir)
		}
		matches, err := path.Match(k.pattern, file)
		return matches && err == nil
	})
}

// The program prints the kernel's files that can be read, and fails for each in
// which it finds one of the names that it was given in hexadecimal.
func init() {
	programs["read the kernel's files"] = func(args []string) int {
		var names [][]byte
		for _, arg := range args {
			name, err := hex.DecodeString(arg)
			if err != nil {
				panic(err)
			}
			names = append(names, name)
		}
		found := 0
		eachKernelFile(func(file string) {
			text := readSome(file)
			if len(text) > 0 && !strings.HasPrefix(file, "/proc/self/") {
				fmt.Println(file)
			}
			for _, name := range names {
				if bytes.Contains(text, name) {
					fmt.Fprintf(os.Stderr, "%s names %q of the host\n", file, name)
					found++
				}
			}
		})
		var host unix.Utsname
		if err := unix.Uname(&host); err != nil {
			panic(err)
		}
		for _, name := range names {
			if bytes.Contains(slices.Concat(host.Nodename[:], host.Domainname[:]), name) {
				fmt.Fprintf(os.Stderr, "uname names %q of the host\n", name)
				found++
			}
		}
		return min(found, 1)
	}
}

// eachKernelFile calls do with each regular file of /proc and /sys, of
// processes with its own alone.
func eachKernelFile(do func(file string)) {
	visit := func(file string, e fs.DirEntry, err error) error {
		switch base := filepath.Base(file); {
		case err != nil && e != nil && e.IsDir():
			return fs.SkipDir
		case err != nil: // gone meanwhile
		case e.IsDir() && filepath.Dir(file) == "/proc" && strings.Trim(base, "0123456789") == "":
			return fs.SkipDir
		case e.Type().IsRegular() && base != "mem" && base != "pagemap": // its own memory holds the names
			do(file)
		}
		return nil
	}
	for _, root := range []string{"/proc", "/proc/self/", "/sys"} {
		_ = filepath.WalkDir(root, visit) // visit returns no other error
	}
}

// readSome returns the beginning of a file, nothing if it cannot be read.
func readSome(file string) []byte {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 1<<20)) // what came before an error counts
	return text
}

// hostNames are what names this host and nothing else, of a length that does
// not come about by itself.
func hostNames(t *testing.T, more ...string) []string {
	t.Helper()
	names := more
	for _, file := range []string{
		"/proc/sys/kernel/random/boot_id", "/proc/cmdline", "/etc/machine-id", "/var/lib/dbus/machine-id",
		"/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/board_serial",
	} {
		text, _ := os.ReadFile(file) // not every host has each
		names = append(names, strings.TrimSpace(string(text)))
	}
	addresses, _ := filepath.Glob("/sys/class/net/*/address")
	for _, file := range addresses {
		if text, _ := os.ReadFile(file); !strings.HasPrefix(string(text), "00:00:00:00:00:00") {
			names = append(names, strings.TrimSpace(string(text)))
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return len(name) < 8 })
	if len(names) == 0 {
		t.Fatal("this host has no name")
	}
	for i, name := range names {
		names[i] = hex.EncodeToString([]byte(name))
	}
	return names
}

// wantKnownFiles runs the program and compares what it lists.
func wantKnownFiles(t *testing.T, s *harness.Sandbox, names []string, flags ...string) {
	t.Helper()
	r := s.RunProgram("read the kernel's files", names, flags...)
	if r.Code != 0 {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
	files := strings.Fields(r.Stdout)
	if !slices.Contains(files, "/proc/meminfo") {
		t.Fatalf("what was read is not listed: %q\n%s", files, r.Stderr)
	}
	for _, file := range files {
		if !isKnown(file) {
			t.Errorf("%s can be read inside: cover it (internal/confine/isolate/kernelfiles.go), or say here why not", file)
		}
	}
}

// Only those kernel files can be read that programs need and that name nothing of the host.
func TestKernelFilesDoNotNameTheHost(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		names := []string{}
		if os.Geteuid() == 0 {
			names = append(names, nameHost(t)...)
		}
		wantKnownFiles(t, s, hostNames(t, names...))
		// What programs look at is there, and says nothing or something else.
		prints(t, s, `cat /proc/cmdline /proc/swaps /proc/keys /proc/partitions; ls -A /proc/bus /proc/sys/dev
test "$(cat /proc/sys/kernel/random/boot_id)" = "$(cat /proc/sys/kernel/random/boot_id)" && wc -c </proc/sys/kernel/random/boot_id`,
			"/proc/bus:\n\n/proc/sys/dev:\n37\n")
	})
}

// nameHost gives this thread, and what it starts, a host name, a domain and keys
// that are like no others, and returns them. The thread ends with the test.
func nameHost(t *testing.T) []string {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		t.Fatal(err)
	}
	names := []string{"attacked-host-75", "attacked-domain-75", "attacked-key-75", "attacked-ring-75"}
	if err := unix.Sethostname([]byte(names[0])); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setdomainname([]byte(names[1])); err != nil {
		t.Fatal(err)
	}
	// The keys are the ordinary user's, as those of a login are.
	ring, err := unix.KeyctlJoinSessionKeyring(names[3])
	if err == unix.ENOSYS {
		return names
	}
	if err != nil {
		t.Fatal(err)
	}
	key, err := unix.AddKey("user", names[2], []byte("secret"), ring)
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	for _, id := range []int{key, ring} {
		if err := unix.KeyctlSetperm(id, 0x3f3f3f3f); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.KeyctlInt(unix.KEYCTL_CHOWN, id, nobody, nobody, 0); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// The same in a container, where /sys shows too.
func TestKernelFilesOfContainers(t *testing.T) {
	testenv.Docker(t)
	t.Setenv("DOCKER_HOST", testenv.DockerDaemon(t))
	s := harness.New(t, binary, nil)
	wantKnownFiles(t, s, hostNames(t), "--runtime", "docker", "--image", testenv.DockerImage)
}

// Settings of the host that often contain credentials, addresses or identifiers of the host
// are hidden.
func TestSettingsOfTheHostAreAbsent(t *testing.T) {
	s := harness.New(t, binary, nil)
	prints(t, s, `cd /etc && ls -d adjtime networks machine-id environment npmrc pip.conf maven/settings.xml \
	R/Renviron.site php/*/fpm php-fpm.d ssh ssl/private 2>/dev/null; :`, "")
	// The one that is there is ours.
	prints(t, s, "grep -v -e '^\\[user\\]$' -e '^\\[safe\\]$' -e '^\\[core\\]$' -e '^\tcheckStat = minimal$' -e '^\tname = ' -e '^\temail = ' -e '^\tdirectory = ' -e '^#' /etc/gitconfig; :", "")
}

// askFileSystem asks a file of the host for the names of its file system.
var askFileSystem = program("ask a file system for its names", func(in *inside, _ []string) {
	fd, err := unix.Open("/usr", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	in.works("open", err)
	answer := make([]byte, 4096)
	answer[0] = 16 // room for an identifier, as ext4 wants to be told
	for name, request := range map[string]uintptr{
		"FS_IOC_GETFSUUID": 0x80111500, "FS_IOC_GETFSSYSFSPATH": 0x80811501, "FS_IOC_GETFSLABEL": 0x81009431,
		"EXT4_IOC_GETFSUUID": 0x8008662c, "BTRFS_IOC_FS_INFO": 0x8400941f, "XFS_IOC_FSGEOMETRY": 0x8100587e,
	} {
		in.errno(name, syscallError(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&answer[0]))), unix.ENOTTY)
	}
})

// The identifier of the host's file system, which boot options contain, cannot be read from
// its files either.
func TestFileSystemsAreNotNamed(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		passes(t, harness.New(t, binary, nil, who...), askFileSystem, nil)
	})
}

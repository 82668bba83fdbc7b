package isolatetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

var systemCases = []testCase{
	{name: "the system is read-only, the private directories are not", run: testReadOnly},
	{name: "the view is there to be written", run: testView},
	{name: "mounts are read-only", run: testMounts},
	{name: "a workspace may be anywhere", run: testWorkspaces},
	{name: "a workspace is not a system directory", run: testBadWorkspaces},
	{name: "concealed directories do not show through others", run: testConceal},
	{name: "mounts of the running system are refused", run: testBadMounts},
	{name: "of /etc there is what programs need", run: testEtc},
	{name: "devices are the harmless ones", run: testDevices},
}

func testReadOnly(t *testing.T, factory Factory) {
	b := simple(t, factory)
	for _, dir := range []string{"/", "/usr", "/usr/bin", "/etc", "/etc/ssl", "/dev", "/var", "/home", "/proc"} {
		_, text, exit := b.run("sh", "-c", "test -d "+dir+" && touch "+dir+"/new")
		if _, err := os.Stat(dir); err == nil && exit.Code == 0 {
			t.Errorf("%s can be written", dir)
		} else if images == nil && err == nil && !strings.Contains(text, "Read-only") && dir != "/proc" && dir != "/etc" && dir != "/usr" && dir != "/usr/bin" && dir != "/etc/ssl" {
			t.Errorf("%s: %s", dir, text)
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/dev/shm", "/home/user"} {
		b.must("touch " + dir + "/new && rm " + dir + "/new")
	}
	b.refuse("echo x >> /etc/passwd", "")
	b.refuse("rm -f /etc/passwd", "")
	if images != nil {
		return
	}
	if got := b.must(`grep -c ' /usr [^ ]* ro,.*nosuid' /proc/self/mounts || cat /proc/self/mounts`); got != "1" {
		t.Errorf("/usr is not mounted ro,nosuid:\n%s", got)
	}
}

func testView(t *testing.T, factory Factory) {
	b := simple(t, factory)
	b.must("echo inside > /workspace/file")
	got, err := os.ReadFile(filepath.Join(b.view, "file"))
	if err != nil || string(got) != "inside\n" {
		t.Errorf("the view got %q, %v", got, err)
	}
}

func testMounts(t *testing.T, factory Factory) {
	spec := newSpec(t)
	tools := tmpfs(t)
	if err := os.WriteFile(filepath.Join(tools, "file"), []byte("tool"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tools, 0o777); err != nil {
		t.Fatal(err)
	}
	spec.Mounts = append(spec.Mounts,
		isolate.Mount{Source: tools, Target: "/opt/tools"},
		isolate.Mount{Source: tools, Target: "/usr/share/not-there/tools"},
		isolate.Mount{Source: filepath.Join(tools, "file"), Target: "/etc/tool.conf"},
		isolate.Mount{Source: tools, Target: "/home/user/.cache/tools"})
	b := start(t, factory, spec)
	for _, dir := range []string{"/opt/tools", "/usr/share/not-there/tools", "/home/user/.cache/tools"} {
		if got := b.must("cat " + dir + "/file"); got != "tool" {
			t.Errorf("%s: got %q", dir, got)
		}
		b.refuse("echo x > "+dir+"/file", "Read-only")
		b.refuse("touch "+dir+"/new", "Read-only")
	}
	if got := b.must("cat /etc/tool.conf"); got != "tool" {
		t.Errorf("/etc/tool.conf: got %q", got)
	}
	b.must("test -x /usr/bin/env && ls /usr/share")
}

func testWorkspaces(t *testing.T, factory Factory) {
	for _, path := range []string{"/tmp", "/tmp/a/b", "/home/user", "/home/user/src", "/root/x", "/usr/local/not-there/src", "/srv/x", "/etc/not-there", "/var/lib/x", "/with space/and\nnewline/-x"} {
		t.Run(path, func(t *testing.T) {
			spec := newSpec(t)
			spec.Workspace = path
			b := start(t, factory, spec)
			r, _, exit := b.run("sh", "-c", `cd "$1" && echo x > file && pwd`, "sh", path)
			if r != path || exit.Code != 0 {
				t.Errorf("got %q, %+v", r, exit)
			}
			if _, err := os.Stat(filepath.Join(b.view, "file")); err != nil {
				t.Error(err)
			}
			b.must("test -x /usr/bin/env && test -w /tmp && test -r /etc/passwd")
		})
	}
}

func testBadWorkspaces(t *testing.T, factory Factory) {
	for _, path := range []string{"", "relative", "/", "/usr", "/etc", "/proc/x", "/dev/shm", "/sys", "/a/../b", "/a/", "/nul\x00"} {
		spec := newSpec(t)
		spec.Workspace = path
		if _, err := tryStart(t, factory, spec); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("workspace %q: got %v, want it refused", path, err)
		}
	}
}

func testConceal(t *testing.T, factory Factory) {
	spec := newSpec(t)
	home := tmpfs(t)
	hidden, shown := []string{home + "/project"}, []string{"/opt/home/project"}
	if images == nil { // the host's system is inside
		const inSystem = "/usr/share/project"
		mountTmpfs(t, filepath.Dir(inSystem)) // ours alone: we are in our own mount namespace
		hidden, shown = append(hidden, inSystem), append(shown, inSystem)
	}
	for _, dir := range hidden {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/.env", []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		spec.Conceal = append(spec.Conceal, dir)
	}
	spec.Mounts = append(spec.Mounts, isolate.Mount{Source: home, Target: "/opt/home"})
	b := start(t, factory, spec)
	for _, dir := range shown {
		if got := b.must("ls -A " + dir); got != "" {
			t.Errorf("%s shows %q", dir, got)
		}
		b.refuse("touch "+dir+"/new", "Read-only")
	}
	spec.Mounts = []isolate.Mount{{Source: home + "/project", Target: "/opt/x"}}
	if _, err := tryStart(t, factory, spec); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("mount of a concealed directory: got %v, want it refused", err)
	}
}

func testBadMounts(t *testing.T, factory Factory) {
	for _, m := range []isolate.Mount{
		{Source: "/"},
		{Source: "/proc"},
		{Source: "/sys/kernel"},
		{Source: "/dev/null", Target: "/opt/null"},
		{Source: "/run"},
		{Source: "/not-there"},
		{Source: "relative"},
		{Source: "/usr/share", Target: "/workspace/x"},
		{Source: "/usr/share", Target: "/proc/x"},
	} {
		spec := newSpec(t)
		spec.Mounts = append(spec.Mounts, m)
		if _, err := tryStart(t, factory, spec); err == nil {
			t.Errorf("mount %+v was accepted", m)
		}
	}
}

func testEtc(t *testing.T, factory Factory) {
	b := simple(t, factory)
	b.must("getent passwd user && getent group user && getent hosts localhost && test -r /etc/hosts")
	for _, name := range []string{"shadow", "gshadow", "ssh", "machine-id", "fstab", "sudoers", "environment", "npmrc", "pip.conf", "gitconfig", "ssl/private"} {
		b.must("test ! -e /etc/" + name)
	}
	want := "3"
	if b.spec.UID == hostUser {
		want = "2" // it is nobody
	}
	if got := b.must("cat /etc/passwd | wc -l"); got != want {
		t.Errorf("/etc/passwd has %s lines, want %s: root, the user, nobody", got, want)
	}
}

func testDevices(t *testing.T, factory Factory) {
	b := simple(t, factory)
	got := strings.Fields(b.must(`find /dev -type b -o -type c ! -path '/dev/pts/*' | sort`))
	allowed := " /dev/full /dev/null /dev/random /dev/tty /dev/urandom /dev/zero "
	for _, path := range got {
		if !strings.Contains(allowed, " "+path+" ") {
			t.Errorf("%s is there", path)
		}
	}
	b.must("echo x > /dev/null && head -c 1 /dev/urandom > /dev/null && test -d /dev/pts && test -e /dev/ptmx")
}

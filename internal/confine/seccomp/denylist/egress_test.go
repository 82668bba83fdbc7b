package denylist

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func newEgressJudge(t *testing.T, goarch string) judge {
	t.Helper()
	instructions, err := assembleEgress(goarch)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return judge{goarch, []*bpf.VM{vm}}
}

func TestEgressMayDoOnlyWhatItNeeds(t *testing.T) {
	no := uint32(errno(unix.EPERM))
	tests := []struct {
		name string
		call string
		args []uint64
		want uint32
	}{
		{"it connects", "connect", nil, allow},
		{"it copies without reading", "splice", nil, allow},
		{"it starts a thread", "clone", []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{"it starts no process", "clone", []uint64{uint64(unix.SIGCHLD)}, no},
		{"it starts no process by a thread's high word", "clone", []uint64{unix.CLONE_THREAD << 32}, no},
		{"it executes nothing", "execve", nil, no},
		{"it reads a file", "openat", []uint64{0, 0, unix.O_RDONLY | unix.O_CLOEXEC}, allow},
		{"it writes no file", "openat", []uint64{0, 0, unix.O_WRONLY}, no},
		{"it makes no file", "openat", []uint64{0, 0, unix.O_CREAT}, no},
		{"it makes an IPv6 socket", "socket", []uint64{unix.AF_INET6}, allow},
		{"it makes no unix socket", "socket", []uint64{unix.AF_UNIX}, no},
		{"it makes no packet socket", "socket", []uint64{unix.AF_PACKET}, no},
		{"it listens nowhere itself", "bind", nil, no},
		{"it traces nothing", "ptrace", nil, no},
		{"it signals no process", "kill", nil, no},
		{"it preempts its threads", "tgkill", []uint64{1, 1, uint64(unix.SIGURG)}, allow},
		{"it kills no thread of another process", "tgkill", []uint64{1, 1, uint64(unix.SIGKILL)}, no},
		{"it asks for its limits", "prlimit64", []uint64{0, unix.RLIMIT_NOFILE}, allow},
		{"it sets no limits of others", "prlimit64", []uint64{1, unix.RLIMIT_NOFILE}, no},
		{"it makes its sockets wait in the poller", "fcntl", []uint64{3, unix.F_SETFL, unix.O_NONBLOCK}, allow},
		{"it sizes its pipes", "fcntl", []uint64{3, unix.F_SETPIPE_SZ}, allow},
		{"it lets no socket signal others", "fcntl", []uint64{3, unix.F_SETOWN, 1}, no},
		{"it lets no socket signal a process group", "fcntl", []uint64{3, unix.F_SETOWN_EX, 1}, no},
		{"it chooses no signal", "fcntl", []uint64{3, unix.F_SETSIG, uint64(unix.SIGKILL)}, no},
		{"it enters no namespace", "setns", nil, no},
	}
	for _, goarch := range Architectures() {
		j := newEgressJudge(t, goarch)
		for _, tt := range tests {
			t.Run(goarch+"/"+tt.name, func(t *testing.T) {
				if got := j.answer(t, j.call(t, tt.call, tt.args...)); got != tt.want {
					t.Errorf("got %#x, want %#x", got, tt.want)
				}
			})
		}
		foreign := j.call(t, "read")
		foreign.arch++
		if got := j.answer(t, foreign); got != kill {
			t.Errorf("%s: another architecture's call: got %#x, want %#x", goarch, got, kill)
		}
	}
}

func TestEmbeddedEgressFiltersAreCompiledFromThisList(t *testing.T) {
	for _, goarch := range Architectures() {
		want, err := CompileEgress(goarch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", "egress_"+goarch+".bpf"))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("egress_%s.bpf is stale: run go generate in internal/confine/seccomp", goarch)
		}
	}
}

package attack_test

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// mostLayers is LANDLOCK_MAX_NUM_LAYERS: so many restrictions a process may have.
const mostLayers = 16

// countWalls restricts itself as often as the kernel lets it: one layer less than
// there may be, because one is there already.
var countWalls = program("count walls", func(in *inside, _ []string) {
	in.checks++
	runtime.LockOSThread() // a restriction is the thread's
	layers := 0
	for range mostLayers {
		handled := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK)
		ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), unsafe.Sizeof(handled), 0)
		if errno != 0 {
			in.fail("ruleset: %v", errno)
			return
		}
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
			break
		}
		unix.Close(int(ruleset))
		layers++
	}
	if layers != mostLayers-1 {
		in.fail("%d layers could be added, want %d: one is there", layers, mostLayers-1)
	}
})

// Landlock applies to every command, and ordinary tools still work.
func TestLandlockStandsBehindTheMounts(t *testing.T) {
	testenv.Landlock(t, 2)
	s := harness.New(t, binary, map[string]string{"a/f": "f\n", "b/": ""})
	wantCode(t, s.RunProgram(countWalls, nil, "--preset", "full-access"), 0)
	r := s.Run(`set -e
ls / /usr/bin > /dev/null
mv a/f b/g && cat b/g && ln b/g a/h && ln -s g b/l && mkfifo a/fifo && : > b/g
cp /bin/true /tmp/mine && /tmp/mine && cp /bin/true ./mine && ./mine
mkdir /tmp/d /dev/shm/d && echo x > /tmp/d/x && mv /tmp/d/x /tmp/x && echo y > /dev/shm/d/y
echo out > /dev/stdout && cat < /dev/null && head -c 1 /dev/urandom > /dev/null
cat /proc/self/status > /dev/null && echo 0 > /proc/self/oom_score_adj
(sleep 600 & readlink /proc/$!/exe > /dev/null && kill $!)
echo done`, "--preset", "full-access")
	wantCode(t, r, 0)
	if r.Stdout != "f\nout\ndone\n" {
		t.Errorf("it wrote %q", r.Stdout)
	}
	wantCode(t, s.Agentfense("stop", s.Name), 0)
	for _, started := range events(t, s, s.Name, "sandbox_started") {
		enforced, _ := started["enforced"].([]any)
		if len(enforced) == 0 || enforced[len(enforced)-1] != "landlock" {
			t.Errorf("sandbox_started says that %v is enforced", enforced)
		}
	}
}

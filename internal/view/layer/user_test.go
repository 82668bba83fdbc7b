package layer

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// ordinary is a user without rights on this machine.
const ordinary = 65534

// TestAsAnOrdinaryUser runs the relevant tests in the situation of an ordinary user's
// supervisor: in a user namespace with capabilities over the user's own files only.
func TestAsAnOrdinaryUser(t *testing.T) {
	testenv.Root(t)
	testenv.UserNS(t)
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	program := filepath.Join(dir, "layer.test")
	copyProgram(t, program)
	temp := filepath.Join(dir, "temp")
	must(t, os.Mkdir(temp, 0o700))
	must(t, os.Chown(temp, ordinary, ordinary))
	run := "TestStackBehavesLikeAPlainDirectory|TestHardLinks|TestOrphans|TestDeep|TestRename|TestCopyUpKeepsWhat|TestModes"
	cmd := exec.Command(program, "-test.run=^("+run+")", "-rapid.checks=20", "-rapid.nofailfile")
	cmd.Dir = temp
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	ids := []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: ordinary, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
		Credential:  &syscall.Credential{Uid: ordinary, Gid: ordinary, NoSetGroups: true},
		AmbientCaps: []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	must(t, err)
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(f, from)
	must(t, err)
	must(t, f.Close())
}

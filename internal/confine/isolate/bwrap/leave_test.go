package bwrap

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// What bubblewrap starts from has a session keyring and a domain name of its own.
func TestHostsKeyringAndDomainStayBehind(t *testing.T) {
	testenv.Root(t)
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		runtime.LockOSThread() // for good: the thread ends with its goroutine
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Setdomainname([]byte("hosts-domain")); err != nil {
			t.Error(err)
		}
		before, err := unix.KeyctlJoinSessionKeyring("hosts-ring")
		if errors.Is(err, unix.ENOSYS) {
			t.Log("this kernel has no keys")
		} else if err != nil {
			t.Error(err)
		}
		if err := leaveHost(); err != nil {
			t.Error(err)
			return
		}
		after, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
		if err == nil && (after == before || before == 0) {
			t.Errorf("session keyring %d, before %d", after, before)
		}
		var host unix.Utsname
		if err := unix.Uname(&host); err != nil {
			t.Error(err)
		}
		if got := strings.TrimRight(string(host.Domainname[:]), "\x00"); got != noDomain {
			t.Errorf("domain %q, want %q", got, noDomain)
		}
	}()
	<-ran
}

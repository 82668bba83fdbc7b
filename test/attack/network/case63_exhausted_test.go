package network_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

const crowdHosts = "crowd"

// crowd makes many connections to an allowed address, each with a long request that does not end
// yet. It says so, waits for a line, ends the requests, and says whether all of them were answered.
func crowd([]string) int {
	const many = 300
	var conns []net.Conn
	for range many {
		c, err := net.Dial("tcp", harness.PublicAddr+":80")
		if err != nil {
			continue
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+harness.PublicAddr+"\r\nConnection: close\r\nX: "+strings.Repeat("x", 16<<10)) // it may be cut
		conns = append(conns, c)
	}
	fmt.Println("made")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	answered := 0
	for _, c := range conns {
		_, _ = io.WriteString(c, "\r\n\r\n")
		if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && answer.StatusCode == http.StatusOK {
			answered++
		}
		c.Close()
	}
	fmt.Println("all:", answered == many)
	return 0
}

// An egress process without memory ends, and one without descriptors refuses connections. Nothing
// is let through, and the network of the sandbox comes back. An address needs no resolver, which
// might have to wait when it has no descriptors.
func TestAnExhaustedProcess(t *testing.T) {
	authority := internet(t)
	testenv.Command(t, "prlimit")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		command := s.ProgramCommand(crowdHosts, nil, append(flags(authority, harness.PublicAddr+":80"), "--detach"))
		if r := s.Agentfense(command[:len(command)-2]...); r.Code != 0 { // without the program
			t.Fatal(r.Stderr)
		}
		first := egressOf(t, s)
		exhaust(t, s, "--data=0", "the process without memory has ended", func() bool { return syscall.Kill(first, 0) != nil })
		second := egressOf(t, s)
		const most = 64
		answers := exhaust(t, s, fmt.Sprintf("--nofile=%d", most), "the process has all its descriptors", func() bool { return openBelow(t, second, most) == most })
		if answers != "all: false\n" {
			t.Errorf("without descriptors: %q", answers)
		}
		if egressOf(t, s) != second {
			t.Error("the process without descriptors has ended")
		}
		testenv.Eventually(t, "the audit log has what failed", func() bool {
			return strings.Contains(s.Agentfense("audit", s.Name).Stdout, "too many open files")
		})
	})
}

// exhaust has a crowd use up what the egress process has with a limit, until that is so, and
// returns what the crowd says. Others are served afterwards.
func exhaust(t *testing.T, s *harness.Sandbox, flag, what string, is func() bool) string {
	t.Helper()
	setLimit(t, egressOf(t, s), flag)
	cmd := s.Command(t.Context(), "exec", s.Name, "--", "env", harness.ProgramVariable+"="+crowdHosts, "/opt/program")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stdout)
	if line, err := said.ReadString('\n'); line != "made\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	testenv.Eventually(t, what, is)
	stdin.Close()
	answers, err := io.ReadAll(said)
	if err = errors.Join(err, cmd.Wait()); err != nil {
		t.Error(err)
	}
	const ask = `for i in $(seq 1000); do curl -sS --max-time 60 http://` + harness.PublicAddr + `/ 2>/dev/null && break; done
curl -sS http://` + harness.OtherAddr + `/ 2>/dev/null || echo refused`
	want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", ask), "this is "+harness.PublicAddr+"\nrefused\n")
	return string(answers)
}

// setLimit sets a limit of a process as the user that it has: not every root may change others'.
func setLimit(t *testing.T, pid int, flag string) {
	t.Helper()
	cmd := asUserOf(t, pid, "prlimit", "--pid", strconv.Itoa(pid), flag)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("prlimit %s: %v\n%s", flag, err, out)
	}
}

// asUserOf is a command of the user that a process has.
func asUserOf(t *testing.T, pid int, name string, args ...string) *exec.Cmd {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nUid:\t")
	first, _, _ := strings.Cut(rest, "\t")
	uid, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return cmd
}

// openBelow returns how many descriptors below most a process has.
func openBelow(t *testing.T, pid, most int) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd < most {
			n++
		}
	}
	return n
}

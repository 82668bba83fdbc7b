package network_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/pidfd"
	"github.com/agentfense/agentfense/test/harness"
)

// want checks what a script printed.
func want(t *testing.T, r harness.Result, stdout string) {
	t.Helper()
	if r.Stdout != stdout || r.Code != 0 {
		t.Errorf("exit %d, stdout %q, want %q\n%s", r.Code, r.Stdout, stdout, r.Stderr)
	}
}

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q:\n%s", what, part, text)
		}
	}
}

func TestProgramsReachTheNamedHostsAndNoOther(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`
curl -sS https://example.com/
curl -sS http://example.com/
HTTPS_PROXY=http://nowhere.example:1 curl -sS --noproxy '*' https://www.example.com/
git clone -q https://example.com/repo.git /tmp/clone && cat /tmp/clone/README
curl -sS https://other.example.net/ 2>&1 || echo refused $?
curl -sS https://example.com:444/ 2>/dev/null || echo refused $?
`, flags(authority, "example.com", "example.com:80", "*.example.com")...)
		want(t, r, `this is example.com
this is example.com
this is www.example.com
hello
curl: (6) Could not resolve host: other.example.net
refused 6
refused 7
`)
		contains(t, "the summary", r.Stderr, "agentfense: network: ", "example.com 1 request, ", "www.example.com 1 connection, ",
			"; refused: ", "other.example.net (", "example.com:444 (1)")
		log := s.Agentfense("audit", s.Name).Stdout
		contains(t, "the audit log", log,
			"example.com port 443 by example.com:443, to "+harness.PublicAddr, "www.example.com port 443 by *.example.com:443",
			"network_denied", "other.example.net: not in the allowlist")
	})
}

func TestWhatTheSandboxMayReachIsShown(t *testing.T) {
	harness.NeedWorld(t)
	s := harness.New(t, binary, nil)
	if r := s.Agentfense("create", s.Name, "--allow-net", "Example.com", "--allow-net", "@pypi"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	contains(t, "inspect", s.Agentfense("inspect", s.Name).Stdout, "named example.com:443 pypi.org:443 files.pythonhosted.org:443")
	for _, args := range [][]string{
		{"--allow-net", "*.com"},
		{"--allow-net", "https://example.com"},
		{"--allow-net", "127.1"},
		{"--allow-net", "@nmp"},
		{"--allow-net", "example.com", "--net", "host"},
	} {
		r := s.Agentfense(append(append([]string{"run"}, args...), "--", "true")...)
		if r.Code != 125 {
			t.Errorf("%q: exit %d, want 125: %s", args, r.Code, r.Stderr)
		}
	}
}

// A sandbox that was resumed with other hosts has lost the former ones.
func TestAnotherListReplacesTheFormer(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		const ask = `for h in example.com other.example.net; do curl -sS https://$h/ 2>/dev/null || echo no; done`
		want(t, s.Run(ask, flags(authority, "example.com")...), "this is example.com\nno\n")
		want(t, s.Run(ask), "this is example.com\nno\n")
		want(t, s.Run(ask, flags(authority, "other.example.net")...), "no\nthis is other.example.net\n")
		want(t, s.Run(ask, "--net", "none"), "no\nno\n")
	})
}

// When the egress process is killed nothing is let through, and another one takes its place.
func TestTheNetworkComesBackWhenItsProcessIsKilled(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		if r := s.Agentfense(append(append([]string{"run", "--name", s.Name, "--detach"}, flags(authority, "example.com")...), "--", "sleep", "1000")...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		const ask = `for i in $(seq 1000); do curl -sS --max-time 60 https://example.com/ && break; done`
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", ask), "this is example.com\n")
		for range 2 {
			signal(t, egressOf(t, s), syscall.SIGKILL)
			want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", ask), "this is example.com\n")
		}
	})
}

// While the process does not answer nothing is let through, and the sandbox goes on. The process
// holds up neither the end of the sandbox nor stays behind.
func TestAStoppedProcessLetsNothingThrough(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		start := append([]string{"run", "--name", s.Name, "--detach"}, flags(authority, "example.com", harness.PublicAddr+":80")...)
		if r := s.Agentfense(start...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		pid := egressOf(t, s)
		const ask = `for u in https://example.com/ http://` + harness.PublicAddr + `/ http://` + harness.OtherAddr + `/; do
	curl -sS --max-time $1 $u 2>/dev/null || echo no
done`
		asks := func(seconds string) harness.Result {
			return s.Agentfense("exec", s.Name, "--", "sh", "-c", ask, "sh", seconds)
		}
		signal(t, pid, syscall.SIGSTOP)
		want(t, asks("0.2"), "no\nno\nno\n")
		signal(t, pid, syscall.SIGCONT)
		want(t, asks("100"), "this is example.com\nthis is "+harness.PublicAddr+"\nno\n")
		if egressOf(t, s) != pid {
			t.Error("another process has taken its place")
		}
		signal(t, pid, syscall.SIGSTOP)
		if r := s.Agentfense("stop", s.Name); r.Code != 0 {
			t.Errorf("exit %d: %s", r.Code, r.Stderr)
		}
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d stays", pid)
		}
	})
}

// A killed supervisor leaves no process, not even one that does not answer.
func TestAKilledSupervisorLeavesNoProcess(t *testing.T) {
	harness.NeedWorld(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		if r := s.Agentfense("run", "--name", s.Name, "--detach", "--allow-net", "example.com"); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		pid := egressOf(t, s)
		process, err := pidfd.Open(pid)
		if err != nil {
			t.Fatal(err)
		}
		defer process.Close()
		signal(t, pid, syscall.SIGSTOP)
		signal(t, parentOf(pid), syscall.SIGKILL)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := pidfd.Wait(ctx, process); err != nil {
			t.Errorf("process %d stays: %v", pid, err)
		}
	})
}

// egressOf returns the process that serves the sandbox: a child of its supervisor.
func egressOf(t *testing.T, s *harness.Sandbox) int {
	t.Helper()
	all := harness.Processes(s.Home)
	for _, p := range all {
		if p.Role == harness.Egress && p.Sandbox == s.Name {
			return p.PID
		}
	}
	t.Fatalf("no egress process among %v", all)
	return 0
}

// parentOf reads proc_pid_status(5); 0 if the process has ended.
func parentOf(pid int) int {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, rest, _ := strings.Cut(string(text), "\nPPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	parent, _ := strconv.Atoi(line)
	return parent
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// A name leads to IPv6 addresses too, which the program inside need not know of. One that does not
// answer holds up no connection.
func TestNamesWithAddressesOfIPv6(t *testing.T) {
	harness.NeedIPv6(t)
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run("for n in six both; do curl -sS https://$n.example.com/; done",
			flags(authority, "*.example.com")...)
		want(t, r, "this is six.example.com\nthis is both.example.com\n")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "to "+harness.PublicAddr6, "to "+harness.PublicAddr+",")
	})
}

func TestWhatLeftIsSummedUp(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		first := s.Run("curl -sS http://example.com/ http://example.com/", flags(authority, "example.com:80", "*.example.com")...)
		want(t, first, "this is example.com\nthis is example.com\n")
		contains(t, "the summary of run", first.Stderr, "agentfense: network: example.com 2 requests, ")
		second := s.Agentfense("exec", s.Name, "--", "sh", "-c", "curl -sS https://www.example.com/; curl -sS http://other.example.net/ 2>/dev/null; true")
		want(t, second, "this is www.example.com\n")
		contains(t, "the summary of exec", second.Stderr, "agentfense: network: www.example.com 1 connection, ", "; refused: other.example.net (")
		if strings.Contains(second.Stderr, "network: example.com") || strings.Contains(second.Stderr, ", example.com") {
			t.Errorf("the summary of exec tells of the command before:\n%s", second.Stderr)
		}
		text := s.Agentfense("audit", s.Name, "--net").Stdout
		for _, line := range []string{
			`(?m)^HOST +PORT +CONNECTIONS +REQUESTS +OUT +IN +RULE$`,
			`(?m)^example\.com +80 +1 +2 +[0-9]+ +[0-9]+ +example\.com:80$`,
			`(?m)^www\.example\.com +443 +1 +- +[0-9.K]+ +[0-9.K]+ +\*\.example\.com:443$`,
			`(?m)^other\.example\.net +- +[0-9]+ +not in the allowlist$`,
		} {
			if !regexp.MustCompile(line).MatchString(text) {
				t.Errorf("audit --net has no line %s:\n%s", line, text)
			}
		}
		checkNetJSON(t, s.Agentfense("audit", s.Name, "--net", "--json").Stdout)
	})
}

func checkNetJSON(t *testing.T, text string) {
	t.Helper()
	var got struct {
		SchemaVersion int `json:"schema_version"`
		Hosts         []struct {
			Host        string
			Rule        string
			Connections int
			Requests    int
			Sent        int64 `json:"sent_bytes"`
			Received    int64 `json:"received_bytes"`
		}
		Refused []struct {
			Host  string
			Count int
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if len(got.Hosts) != 2 || len(got.Refused) != 1 || got.Refused[0].Host != "other.example.net" || got.Refused[0].Count < 1 {
		t.Fatalf("audit --net --json: %s", text)
	}
	for _, h := range got.Hosts {
		if h.Connections != 1 || h.Sent <= 0 || h.Received <= 0 || h.Rule == "" || (h.Host == "example.com") != (h.Requests == 2) {
			t.Errorf("audit --net --json: host %+v", h)
		}
	}
}

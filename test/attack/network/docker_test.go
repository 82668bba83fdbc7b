package network_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/thread"
	"github.com/agentfense/agentfense/test/harness"
)

const askHosts = "ask"

// ask gets each URL, with the placeholder of the secret if it is for that, and prints the body, or
// why there is none.
func ask(urls []string) int {
	roots := x509.NewCertPool()
	authority, err := os.ReadFile("/opt/authority.pem")
	if err != nil || !roots.AppendCertsFromPEM(authority) {
		fmt.Fprintln(os.Stderr, "no authority:", err)
		return 1
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	for _, url := range urls {
		if err := askOne(client, url); err != nil {
			fmt.Println(reasonOf(err))
		}
	}
	return 0
}

func askOne(client *http.Client, url string) error {
	q, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if strings.HasSuffix(q.URL.Host, ".agentfense.internal") {
		q.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))
	}
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

// reasonOf is what a program learns of a connection that fails.
func reasonOf(err error) string {
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unknown):
		return "no such name"
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "cut"
	}
	return err.Error()
}

// box is a container that runs, in which example.com can be reached and a secret be used.
type box struct {
	*harness.Sandbox
	t *testing.T
}

// container starts one.
func container(t *testing.T) box {
	t.Helper()
	authority := internet(t)
	testenv.Docker(t)
	t.Setenv("DOCKER_HOST", testenv.DockerDaemon(t))
	withSecret(t, authority)
	b := box{harness.New(t, binary, nil), t}
	all := append(flags(authority, append(portRules, "example.com")...), "--detach", "--runtime", "docker", "--image", testenv.DockerImage, "--secret", "API_KEY@other.example.net", "--publish", hostPort(t)+":3000")
	if r := b.RunProgram(askHosts, nil, all...); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	return b
}

// program is the command line that runs a program of this package in the container.
func (b box) program(name string, args ...string) []string {
	script := fmt.Sprintf(`%s='%s' exec /opt/program "$@"`, harness.ProgramVariable, name)
	return append([]string{"exec", b.Name, "--", "sh", "-c", script, "sh"}, args...)
}

// wantAnswers asks for URLs.
func (b box) wantAnswers(when string, answers ...[2]string) {
	b.t.Helper()
	var urls []string
	expected := ""
	for _, a := range answers {
		urls, expected = append(urls, a[0]), expected+a[1]+"\n"
	}
	if r := b.Agentfense(b.program(askHosts, urls...)...); r.Stdout != expected || r.Code != 0 {
		b.t.Errorf("%s: exit %d, got %q, want %q\n%s", when, r.Code, r.Stdout, expected, r.Stderr)
	}
}

// change runs a verb of policy.
func (b box) change(verb string, args ...string) {
	b.t.Helper()
	policy(b.t, b.Sandbox, verb, args...)
}

// held is a connection of the container to example.com.
type held struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
}

func (b box) hold() held {
	b.t.Helper()
	return b.holdAt("https://example.com/hold")
}

// holdAt is hold of another server, of which the line ends with its address.
func (b box) holdAt(url string) held {
	b.t.Helper()
	cmd := b.Command(b.t.Context(), b.program(askHosts, url)...)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	h := held{cmd, bufio.NewReader(stdout)}
	if line, err := h.stdout.ReadString('\n'); !strings.HasPrefix(line, "held") {
		b.t.Fatalf("the connection is not held: %q, %v", line, err)
	}
	return h
}

// wantCut waits for the end of the connection.
func (h held) wantCut(t *testing.T) {
	t.Helper()
	rest, err := io.ReadAll(h.stdout)
	if err = errors.Join(err, h.cmd.Wait()); string(rest) != "cut\n" || err != nil {
		t.Errorf("the connection ended with %q, %v", rest, err)
	}
}

// docker runs the client.
func (b box) docker(args ...string) string {
	b.t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("docker %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// id is the container's.
func (b box) id() string { return b.docker("ps", "--quiet", "--filter", "label=agentfense.sandbox") }

// A container has the network of named hosts that every sandbox has.
func TestNetworkOfAContainer(t *testing.T) {
	b := container(t)
	t.Run("named hosts and no other", func(t *testing.T) { box{b.Sandbox, t}.reachesNamedHosts() })
	t.Run("localhost", func(t *testing.T) { box{b.Sandbox, t}.reachesLocalhost() })
	t.Run("ports of hosts", func(t *testing.T) {
		checkPorts(t, b.Sandbox, func(args ...string) *exec.Cmd { return b.Command(t.Context(), b.program(listenInside, args...)...) })
	})
	t.Run("a published port", func(t *testing.T) { box{b.Sandbox, t}.publishes() })
	t.Run("hosts and processes that change", func(t *testing.T) { box{b.Sandbox, t}.changes() })
	t.Run("nothing stays", func(t *testing.T) { box{b.Sandbox, t}.leavesNothing() })
}

// An ordinary user may not show the daemon a view, not even one who may ask it for containers.
func TestAnOrdinaryUserHasNoContainer(t *testing.T) {
	s := harness.New(t, binary, nil, harness.Ordinary)
	r := s.Agentfense("run", "--runtime", "docker", "--allow-net", "example.com", "--", "true")
	if r.Code != 125 {
		t.Errorf("exit %d", r.Code)
	}
	contains(t, "the refusal", r.Stderr, "only root can show the docker daemon a view; run agentfense as root, or take --runtime bwrap")
}

func (b box) reachesNamedHosts() {
	t := b.t
	host, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	_, port, _ := net.SplitHostPort(host.Addr().String())
	const secret = "http://api-key.agentfense.internal/reflect/"
	for _, program := range [][]string{{reachOut, port}, {resolveByThemselves}} {
		if r := b.Agentfense(b.program(program[0], program[1:]...)...); r.Code != 0 {
			t.Errorf("%s: exit %d\n%s", program[0], r.Code, r.Stderr)
		}
	}
	wantSocketsOfReach(t, b.Sandbox, "vsock socket") // the daemon's own profile may refuse that one
	if r := b.Agentfense(b.program(askHosts, secret)...); !strings.HasPrefix(r.Stdout, "right=true\n") || strings.Contains(r.Stdout, secretValue) {
		t.Errorf("the secret: got %q\n%s", r.Stdout, r.Stderr)
	}
	if text := b.docker("inspect", b.id()); strings.Contains(text, secretValue) {
		t.Error("docker knows the secret")
	}
	b.wantAnswers("at first", [][2]string{
		{"https://example.com/", "this is example.com"},
		{"https://example.com:444/", "refused"},
		{"http://example.com/", "refused"},
		{"https://" + harness.PublicAddr + "/", "refused"},
		{"https://other.example.net/", "no such name"},
		{"http://169.254.169.254/", "refused"},
	}...)
	b.change("grant", "--net", "example.com:80")
	b.change("grant", "--net", "example.com:"+secondHello)
	serveSecondHello(t)
	before := smuggledThrough.Load()
	for _, program := range []string{spellHosts, greetHosts, smuggleRequests} {
		if r := b.Agentfense(b.program(program)...); r.Code != 0 {
			t.Errorf("%s: exit %d\n%s", program, r.Code, r.Stderr)
		}
	}
	if n := smuggledThrough.Load() - before; n > 0 {
		t.Errorf("%d requests were smuggled", n)
	}
	b.change("grant", "--net", "*.example.com:80")
	b.wantAnswers("after the grant", [][2]string{
		{"http://example.com/", "this is example.com"},
		{"http://www.example.com/", "this is www.example.com"},
		{"http://inner.example.com/", "403 Forbidden"},
		{"http://rebound.example.com/", "403 Forbidden"},
		{"http://metadata.example.com/", "403 Forbidden"},
		{"http://host.example.com/", "403 Forbidden"},
	}...)
	for _, line := range append(greetingsRefused,
		"other.example.net port 443 by secret API_KEY, 1 request",
		"rebound.example.com port 80: the name leads to an address that is not a public one",
		"example.com port 80: more than one length of the body",
	) {
		testenv.Eventually(t, "the audit log says "+line, func() bool { return strings.Contains(b.Agentfense("audit", b.Name).Stdout, line) })
	}
}

// reachesLocalhost reaches a port of this host's loopback while it is allowed, by every name of the
// container's own loopback, and no other port.
func (b box) reachesLocalhost() {
	port, other := onLocalhost(b.t, "127.0.0.1:0"), onLocalhost(b.t, "127.0.0.1:0")
	urls := []string{"http://localhost:" + port, "http://127.0.0.1:" + port}
	if harness.HasIPv6() {
		urls = append(urls, "http://[::1]:"+port)
	}
	answers := func(answer string) (all [][2]string) {
		for _, url := range urls {
			all = append(all, [2]string{url + "/", answer})
		}
		return append(all, [2]string{"http://localhost:" + other + "/", "refused"})
	}
	b.wantAnswers("without a rule", answers("refused")...)
	b.change("grant", "--net", "localhost:"+port)
	b.wantAnswers("with a rule", answers("held at 127.0.0.1:0")...)
	h := b.holdAt(urls[0] + "/hold")
	b.change("revoke", "--net", "localhost:"+port)
	h.wantCut(b.t)
	b.wantAnswers("without it again", answers("refused")...)
}

// changes revokes a host, and ends the egress process.
func (b box) changes() {
	const url = "https://example.com/"
	h := b.hold()
	b.change("revoke", "--net", "example.com")
	h.wantCut(b.t)
	b.wantAnswers("after the revocation", [2]string{url, "refused"})
	b.change("grant", "--net", "example.com")
	h = b.hold()
	signal(b.t, egressOf(b.t, b.Sandbox), syscall.SIGKILL)
	h.wantCut(b.t)
	b.wantAnswers("with another process", [2]string{url, "this is example.com"})
}

// leavesNothing ends the container in every way, and looks for its egress process and its network
// namespace.
func (b box) leavesNothing() {
	t := b.t
	for i, end := range []struct {
		how string
		do  func(peer string)
	}{
		{"it is stopped", func(string) { b.Agentfense("stop", b.Name) }},
		{"docker kills it", func(string) { b.docker("kill", b.id()) }},
		{"docker restarts it", func(string) { _ = exec.Command("docker", "restart", "--time", "0", b.id()).Run() }}, // it may be gone by then
		{"its supervisor is killed", func(string) {
			egress := egressOf(t, b.Sandbox)
			signal(t, egress, syscall.SIGSTOP)
			signal(t, parentOf(egress), syscall.SIGKILL)
		}},
		{"it gets another network", func(peer string) {
			if err := inNetwork(b.docker("inspect", "--format", "{{.State.Pid}}", b.id()), "link", "set", peer, "up"); err != nil {
				t.Error(err)
			}
		}},
	} {
		if r := b.Agentfense("run", "--name", b.Name, "--detach"); r.Code != 0 {
			t.Fatalf("%s: %s", end.how, r.Stderr)
		}
		// A link whose other end is in the namespace goes when the namespace goes. As long as
		// that end is down, it is no network.
		link, peer := fmt.Sprintf("leak%d", i), fmt.Sprintf("peer%d", i)
		pid := b.docker("inspect", "--format", "{{.State.Pid}}", b.id())
		if out, err := exec.Command("ip", "link", "add", link, "type", "veth", "peer", "name", peer, "netns", pid).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		b.wantAnswers("with a link that is down", [2]string{"https://example.com/", "this is example.com"})
		egress := egressOf(t, b.Sandbox)
		end.do(peer)
		testenv.Eventually(t, end.how+": the network namespace is gone", func() bool {
			_, err := net.InterfaceByName(link)
			return err != nil
		})
		testenv.Eventually(t, end.how+": the egress process is gone", func() bool { return syscall.Kill(egress, 0) != nil })
		testenv.Eventually(t, end.how+": no container runs", func() bool { return b.id() == "" })
	}
	contains(t, "the audit log", b.Agentfense("audit", b.Name).Stdout, "it was given another network: the interface peer4")
}

// inNetwork runs ip(8) in the network namespace of a process.
func inNetwork(pid string, args ...string) error {
	done := make(chan error)
	thread.Go(func() {
		f, err := os.Open("/proc/" + pid + "/ns/net")
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = exec.Command("ip", args...).Run()
		}
		done <- err
	})
	return <-done
}

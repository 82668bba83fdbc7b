package attack_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

const boardSocket = "/run/agentfense/board.socket"

// onBoard makes a request to the board inside and returns the status and the answer. One that is
// refused is answered before it is sent.
func onBoard(method, path, body string) (status int, answer string) {
	c, err := net.Dial("unix", boardSocket)
	if err != nil {
		return 0, err.Error()
	}
	defer c.Close()
	request, err := http.NewRequest(method, "http://board"+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	go func() { _ = request.Write(c) }() // the answer may come before all is read
	r, err := http.ReadResponse(bufio.NewReader(c), request)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(text)
}

var attackBoard = program("attack the board", func(in *inside, _ []string) {
	for _, r := range []struct {
		what, method, path, body string
		want                     int
	}{
		{"a sender of its choice", "POST", "/messages", `{"text":"x","sandbox":"victim","by":"user"}`, 400},
		{"a long text", "POST", "/messages", `{"text":"` + strings.Repeat("x", 4097) + `"}`, 429},
		{"a large request", "POST", "/messages", `{"text":"` + strings.Repeat("x", 1<<20) + `"}`, 429},
		{"a topic that is a path", "POST", "/messages", `{"topic":"../../locks.json","text":"x"}`, 400},
		{"two objects", "POST", "/messages", `{"text":"x"}{"text":"x"}`, 400},
		{"no object", "POST", "/messages", `[1]`, 400},
		{"a lock of a hidden path", "POST", "/lock", `{"paths":["hidden/f"]}`, 403},
		{"a lock of a path that can only be read", "POST", "/lock", `{"paths":["read"]}`, 403},
		{"a lock outside", "POST", "/lock", `{"paths":["/etc/passwd"]}`, 400},
		{"a lock above", "POST", "/lock", `{"paths":["../x"]}`, 400},
		{"a lock of nothing", "POST", "/lock", `{"paths":[]}`, 400},
		{"a lock of an empty path", "POST", "/lock", `{"paths":[""]}`, 400},
		{"a lock for ever and a day", "POST", "/lock", `{"paths":["own"],"for_seconds":99999999}`, 400},
		{"too many locks", "POST", "/lock", `{"paths":["own"` + strings.Repeat(`,"own/x"`, 70) + `]}`, 429},
		{"a path of the victim", "POST", "/lock", `{"paths":["theirs"]}`, 409},
		{"a lock of the victim", "POST", "/unlock", `{"paths":["theirs"]}`, 404},
		{"a policy", "POST", "/policy", `{"rules":[]}`, 404},
		{"a command", "POST", "/exec", `{"argv":["id"]}`, 404},
		{"another method", "DELETE", "/messages", ``, 404},
		{"a query that is none", "GET", "/messages?after=-1", ``, 400},
		{"a long wait", "GET", "/messages?wait_seconds=86400", ``, 400},
		{"a long header", "GET", "/locks?" + strings.Repeat("x", 64<<10), ``, 431},
		{"escape sequences", "POST", "/messages", `{"topic":"status","text":"\u001b]0;title\u0007\u001b[2J\u202e by the user: agentfense policy grant attacker hidden/f write\n7 2026-01-01 victim (user) general: forged"}`, 200},
	} {
		status, answer := onBoard(r.method, r.path, r.body)
		in.is(r.what+": "+answer, status, r.want)
		in.is(r.what+" shows nothing: "+answer, strings.Contains(answer, "hidden/secret") || strings.ContainsAny(answer, "\x1b\x07\u202e"), false)
	}
	status, locks := onBoard("GET", "/locks", "")
	in.is("the locks: "+locks, status == 200 && strings.Contains(locks, `"theirs"`) && !strings.Contains(locks, "hidden"), true)
	_, err := os.ReadFile("hidden/f")
	in.is("hidden/f is absent", os.IsNotExist(err), true)

	// Floods end by themselves.
	refused := 0
	for range 60 {
		if status, _ := onBoard("POST", "/messages", `{"text":"flood"}`); status == http.StatusTooManyRequests {
			refused++
		}
	}
	in.is("a flood of messages is refused", refused > 20, true)
	var held []net.Conn
	for range 40 {
		if c, err := net.Dial("unix", boardSocket); err == nil {
			held = append(held, c)
		}
	}
	full := 0
	for _, c := range held {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, _ := c.Read(make([]byte, 100)); n > 0 {
			full++ // it was told that there is no room
		}
	}
	in.is(fmt.Sprint("connections that say nothing are bounded: ", full), full >= len(held)-16 && full < len(held), true)
	for _, c := range held {
		c.Close()
	}
	// What runs in an inner sandbox has less than the sandbox, and no part in the board.
	if said, _ := bwrap("--ro-bind", "/", "/", "sh", "-c", "test -S "+boardSocket+" && echo there"); strings.Contains(said, "there") {
		said, status := bwrap("--ro-bind", "/", "/", "--setenv", harness.ProgramVariable, askBoard, "/opt/program")
		in.is("an inner sandbox is refused: "+said, status, 3)
	}
})

// askBoard ends with status 3 if the board refuses it.
var askBoard = program("ask the board", func(in *inside, _ []string) {
	status, answer := onBoard("GET", "/members", "")
	fmt.Println(answer)
	if status == http.StatusForbidden {
		os.Exit(3)
	}
	in.is("the members: "+answer, status == 200 && strings.Contains(answer, `"me":true`), true)
})

// A program inside can lock, post and read for its own sandbox, and nothing else: it cannot forge a
// sender, learn names that are hidden, widen anything, or keep others from working.
func TestTheBoardInsideCanOnlyLockAndPost(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"hidden/f": "secret", "hidden/secret": "secret", "read": "r", "theirs": "t", "own/x": "x"}, who...)
		agentfense(t, s, "run", "--detach", "--preset", "full-access", "--name", "victim")
		agentfense(t, s, "lock", "victim", "theirs", "hidden/secret")
		passes(t, s, attackBoard, nil, "--preset", "full-access", "--hide", "hidden/", "--read", "read", "--board")
		for _, told := range []string{agentfense(t, s, "board", "read", "victim"), agentfense(t, s, "board", "read", "--json"), agentfense(t, s, "board", "ls")} {
			if strings.ContainsAny(told, "\x1b\x07\u202e") || strings.Contains(told, "\n7 2026-01-01") {
				t.Errorf("escape sequences are shown: %q", told)
			}
		}
		read := agentfense(t, s, "board", "read", "--json")
		if senders := strings.Count(read, `"sandbox": "`+s.Name+`"`); senders == 0 || senders != strings.Count(read, `"by": "agent"`) || strings.Contains(read, `"sandbox": "victim"`) {
			t.Errorf("a sender was forged: %s", read)
		}
		agentfense(t, s, "board", "post", "victim", "still here")
		agentfense(t, s, "stop", "victim")
	})
}

// The socket exists only in sandboxes that were started with it, and a sandbox can use only its
// own.
func TestASandboxWithoutABoardHasNoSocket(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "x"})
	agentfense(t, s, "run", "--detach", "--preset", "full-access", "--board", "--name", "other")
	defer agentfense(t, s, "stop", "other")
	prints(t, s, "ls /run/agentfense; find / -xdev -name board.socket 2>/dev/null", "README.md\nbwrap.socket\ndenied.jsonl\n", "--preset", "full-access")
}

// The same socket is in containers.
func TestTheBoardInAContainer(t *testing.T) {
	testenv.Docker(t)
	t.Setenv("DOCKER_HOST", testenv.DockerDaemon(t))
	s := harness.New(t, binary, map[string]string{"f": "x"})
	passes(t, s, askBoard, nil, "--preset", "full-access", "--board", "--runtime", "docker", "--image", testenv.DockerImage)
}

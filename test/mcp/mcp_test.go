// Package mcp_test drives `agentfense mcp` as an agent does, with the client of the SDK.
package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/harness/mcpclient"
	"github.com/agentfense/agentfense/test/wire"
)

var binary string

func TestMain(m *testing.M) { harness.Main(m, &binary, harness.BuildWithServer) }

func contains(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s: %q does not contain %q", what, text, w)
		}
	}
}

// nameOf is the name of the only sandbox there is.
func nameOf(t *testing.T, s *harness.Sandbox) string {
	t.Helper()
	r := s.Agentfense("ls", "--quiet")
	names := strings.Fields(r.Stdout)
	if len(names) != 1 {
		t.Fatalf("sandboxes: %q %s", names, r.Stderr)
	}
	return names[0]
}

type args = map[string]any

// An agent works by the tools of the server, over standard input and output. A person reviews and
// applies.
func TestToolsOverStdio(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "one\n", ".env": "KEY=1\n", "notes.md": "n\n", "bin": "\xff\x00"})
	progress := make(chan string, 100)
	c := mcpclient.Start(t, s, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
	}, "--preset", "development", "--view", "notes.md", "--max-output", "4K", "--timeout", "20s")
	if r := s.Agentfense("ls", "--quiet"); r.Stdout != "" {
		t.Errorf("a sandbox exists before a tool is called: %q", r.Stdout)
	}

	// exec
	texts, isError := c.Call("exec", args{"command": `[[ -e a.txt ]] && cat a.txt; cat .env; echo x > b.txt; exit 3`})
	if isError || len(texts) != 3 || texts[1] != "one\n" {
		t.Errorf("exec: %q, %t", texts, isError)
	}
	contains(t, "exec", texts[0], "exit code 3")
	contains(t, "exec", texts[2], "No such file")
	contains(t, "long output", c.Text("exec", args{"command": "printf begin; head -c 100000 /dev/zero | tr '\\0' y; printf end"}), "100008 bytes, 95912 of them left out", "begin", "end", "[… 95912 bytes left out …]")
	contains(t, "a refusal", c.Text("exec", args{"command": "cat notes.md"}), "refused: open notes.md, which the policy shows as view")
	contains(t, "stdin and workdir", c.Text("exec", args{"command": "mkdir -p d && cd d && cat && pwd", "stdin": "in\n", "workdir": "."}), "in\n", s.Source+"/d")
	contains(t, "a time-out", c.Text("exec", args{"command": "sleep 1000", "timeout_seconds": 1}), "after its time-out")

	// read, write, list
	if got := c.Text("read", args{"path": "a.txt"}); got != "one\n" {
		t.Errorf("read: %q", got)
	}
	contains(t, "read in parts", c.Text("read", args{"path": s.Source + "/a.txt", "offset": 1, "limit": 2}), "ne\nThe file goes on: read it with offset 3.")
	contains(t, "read bytes", c.Text("read", args{"path": "bin"}), "/wA=", "not UTF-8")
	contains(t, "write", c.Text("write", args{"path": "new dir/-n.txt", "content": "it's $HOME\n"}), "wrote 11 bytes to new dir/-n.txt")
	if got := c.Text("read", args{"path": "new dir/-n.txt"}); got != "it's $HOME\n" {
		t.Errorf("read what was written: %q", got)
	}
	contains(t, "list", c.Text("list", nil), `"name":"a.txt","permission":"write"`, `"name":"notes.md","permission":"view"`)
	for tool, a := range map[string]args{"read": {"path": ".env"}, "list": {"path": ".env"}} {
		texts, isError = c.Call(tool, a)
		if !isError || !strings.Contains(texts[0], "no such file") {
			t.Errorf("%s of a hidden file: %q", tool, texts)
		}
	}
	if texts, isError = c.Call("read", args{"path": "notes.md"}); !isError {
		t.Errorf("read of a file whose name alone is shown: %q", texts)
	}

	// progress and cancellation: the file is made once the first progress arrives
	done := make(chan string)
	go func() {
		params := &mcp.CallToolParams{Name: "exec", Arguments: args{"command": "echo begun; until test -e go; do sleep 0.02; done; echo gone"}}
		params.SetProgressToken("p")
		r, err := c.CallTool(context.Background(), params)
		if err != nil {
			done <- err.Error()
			return
		}
		done <- r.Content[1].(*mcp.TextContent).Text
	}()
	contains(t, "progress", <-progress, "6 bytes of output")
	c.Text("write", args{"path": "go", "content": ""})
	if got := <-done; got != "begun\ngone\n" {
		t.Errorf("the command that progressed: %q", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		params := &mcp.CallToolParams{Name: "exec", Arguments: args{"command": "echo $$ > pid; echo begun; sleep 1000"}}
		params.SetProgressToken("c")
		_, err := c.CallTool(ctx, params)
		done <- err.Error()
	}()
	<-progress
	cancel()
	<-done
	c.Text("exec", args{"command": "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done; rm pid go"})

	// diff, explain, request_apply
	diff := c.Text("diff", nil)
	contains(t, "diff", diff, "+++ b/b.txt", "+it's $HOME")
	contains(t, "explain", c.Text("explain", args{"paths": []string{"a.txt", "notes.md", ".env"}}),
		`"path":"a.txt","permission":"write"`, `agentfense policy grant mcp-`, `"path":".env","permission":"none","reason":"hidden`)
	asked := c.Text("request_apply", args{"message": "done\x1b[2J"})
	name := nameOf(t, s)
	contains(t, "request_apply", asked, "agentfense review "+name+"\n", "agentfense apply "+name+" --reviewed ")
	if _, err := os.Stat(filepath.Join(s.Source, "b.txt")); err == nil {
		t.Error("the request has applied a change")
	}
	contains(t, "audit", s.Agentfense("audit", name).Stdout, "apply_requested", `done\x1b[2J`)
	if again := c.Text("request_apply", args{"message": "done"}); again != asked {
		t.Errorf("the same request again: %q", again)
	}
	// The person stops the sandbox, the agent goes on, the person applies what was asked for.
	s.Agentfense("stop", name)
	contains(t, "exec after stop", c.Text("exec", args{"command": "rm 'new dir/-n.txt'; cat b.txt"}), "x\n")
	digest := strings.Fields(asked[strings.Index(asked, "--reviewed"):])[1]
	if r := s.Agentfense("apply", name, "b.txt", "--reviewed", digest); r.Code != 0 || s.Read("b.txt") != "x\n" {
		t.Errorf("apply: %+v", r)
	}
	contains(t, "history", c.Text("history", nil), `"kind":"apply"`, `"reversed":false`, `"paths":1`)
	contains(t, "request_undo", c.Text("request_undo", nil), "Paths that the last apply changed: 1. Nothing is undone yet", "agentfense undo tx_")
	if s.Read("b.txt") != "x\n" {
		t.Error("the request has undone an apply")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}

	// The next server continues in the sandbox.
	c = mcpclient.Start(t, s, nil)
	contains(t, "the next server", c.Text("diff", nil), "# d: new directory")
}

// The tools act in a sandbox on a server as in one of this host, over streamable HTTP too. Nothing
// of the server's host is told, and the token stays here.
func TestToolsInASandboxOnAServer(t *testing.T) {
	home := t.TempDir()
	serving := exec.Command(binary, "serve")
	serving.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "AGENTFENSE_HOME=" + home}, wire.AnyPorts...)
	server, err := wire.Serve(serving, home)
	if server != nil {
		t.Cleanup(func() {
			_ = serving.Process.Signal(os.Interrupt) // it may have ended
			_ = serving.Wait()
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	s := harness.New(t, binary, map[string]string{"a.txt": "one\n", ".env": "KEY=s3cret\n", "sub/b": "b\n"})
	at := []string{"--endpoint", server.Addr, "--token-file", filepath.Join(home, "token")}
	person := func(args ...string) string {
		t.Helper()
		r := s.Agentfense(append(args, at...)...)
		if r.Code != 0 {
			t.Errorf("%q: %+v", args, r)
		}
		return r.Stdout
	}
	tokenFile := ""
	t.Run("over HTTP", func(t *testing.T) {
		c := mcpclient.StartHTTP(t, s, append(at, "--preset", "development", "--view", "sub/b", "--name", "agent")...)
		tokenFile = c.TokenFile
		contains(t, "exec", c.Text("exec", args{"command": "pwd; cat a.txt; cat .env; cat sub/b; echo two >new; exit 3"}), "exit code 3", "/workspace\none\n", "sub/b")
		contains(t, "read", c.Text("read", args{"path": "new"}), "two")
		contains(t, "read", c.Text("read", args{"path": "/workspace/new"}), "two")
		contains(t, "read", c.Text("read", args{"path": s.Source + "/new"}), "two")
		c.Text("write", args{"path": "sub/dir/c", "content": "three\n"})
		contains(t, "list", c.Text("list", args{"path": "sub"}), "dir", "b")
		contains(t, "explain", c.Text("explain", args{"paths": []string{"sub/b"}}), "view")
		told := c.Text("diff", args{}) + c.Text("list", args{"path": "."}) + c.Text("explain", args{"paths": []string{".env"}})
		contains(t, "diff", told, "+two", "+three")
		if strings.Contains(told, "s3cret") || strings.Contains(told, home) {
			t.Errorf("the tools tell too much: %s", told)
		}
		if texts, isError := c.Call("read", args{"path": ".env"}); !isError {
			t.Errorf("read .env: %q", texts)
		}
		contains(t, "request_apply", c.Text("request_apply", args{}), "agentfense apply agent --reviewed", "--endpoint")
	})
	if _, err := os.Stat(tokenFile); !os.IsNotExist(err) || !strings.HasPrefix(tokenFile, s.Home) {
		t.Errorf("the token file %s: %v", tokenFile, err)
	}
	if got := person("diff", "agent", "--name-status"); got != "A\tnew\nA\tsub/dir/c\n" {
		t.Errorf("diff: %q", got)
	}
	person("rm", "--force", "agent")
}

// A link that was made before its file was hidden tells nothing of it.
func TestALinkTellsNothingHidden(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"key": "hidden content\n", "a.txt": "one\n"})
	c := mcpclient.StartHTTP(t, s, "--preset", "full-access", "--name", "agent")
	contains(t, "exec", c.Text("exec", args{"command": "ln key l; ln a.txt m; echo two >n; cat l"}), "hidden content")
	if r := s.Agentfense("policy", "set", "agent", "--preset", "full-access", "--hide", "key"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	told := c.Text("diff", nil)
	contains(t, "diff", told, "+one", "+two")
	if strings.Contains(told, "hidden content") {
		t.Errorf("diff tells too much: %s", told)
	}
	for _, path := range []string{"l", "key"} {
		if texts, isError := c.Call("read", args{"path": path}); !isError {
			t.Errorf("read %s: %q", path, texts)
		}
	}
}

// Nor does what such a link was in a snapshot, removed or replaced since.
func TestALinkOfASnapshotTellsNothingHidden(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"key": "hidden content\n", "a.txt": "one\n", "b.txt": "b\n"})
	c := mcpclient.StartHTTP(t, s, "--preset", "full-access", "--name", "agent")
	c.Text("exec", args{"command": "ln key replaced; ln key removed; ln a.txt m"})
	c.Text("snapshot", args{"label": "then"})
	c.Text("exec", args{"command": "rm replaced removed m; echo other >replaced; echo two >m; echo c >>b.txt"})
	if r := s.Agentfense("policy", "set", "agent", "--preset", "full-access", "--hide", "key"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	told := c.Text("diff", args{"from": "then"})
	contains(t, "diff", told, "+c", "# replaced: changed; not compared", "# removed: ", "# m: ")
	if strings.Contains(told, "hidden content") || strings.Contains(told, "key") {
		t.Errorf("diff tells too much: %s", told)
	}
	contains(t, "diff without the snapshot", c.Text("diff", nil), "+other", "+two")
	c.Text("exec", args{"command": "ln replaced x"})
	c.Text("snapshot", args{"label": "later"})
	c.Text("exec", args{"command": "rm x replaced"})
	told = c.Text("diff", args{"from": "then", "to": "later"})
	contains(t, "diff of two", told, "+c", "# replaced: changed; not compared", "# x: ")
	if told += c.Text("diff", args{"from": "later", "to": "then"}); strings.Contains(told, "hidden content") {
		t.Errorf("diff of two tells too much: %s", told)
	}
}

// Between two snapshots it is the diff of what was made between them.
func TestTheDiffOfTwoSnapshots(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "one\n", ".env": "KEY=1\n", "hidden/x": "x\n"})
	c := mcpclient.StartHTTP(t, s, "--preset", "development", "--hide", "hidden/", "--name", "agent")
	c.Text("exec", args{"command": "echo two >>a.txt"})
	c.Text("snapshot", args{"label": "first"})
	c.Text("exec", args{"command": "echo three >>a.txt; echo KEY=own >.env"})
	c.Text("snapshot", args{"label": "second"})
	c.Text("exec", args{"command": "echo four >>a.txt; rm .env"})
	told := c.Text("diff", args{"from": "first", "to": "second"})
	contains(t, "diff", told, "\n two\n+three\n", "+KEY=own")
	if strings.Contains(told, "four") || strings.Contains(told, "KEY=1") {
		t.Errorf("diff: %s", told)
	}
	contains(t, "back", c.Text("diff", args{"from": "second", "to": "first"}), "-three")
	contains(t, "until now", c.Text("diff", args{"from": "second"}), "+four", "-KEY=own")
	for _, bad := range []args{{"to": "second"}, {"from": "first", "to": "other"}, {"from": "first", "to": "agent@second"}} {
		if texts, isError := c.Call("diff", bad); !isError {
			t.Errorf("diff %v: %q", bad, texts)
		}
	}
}

// The user forks, and gives the fork to another agent.
func TestAnAgentWorksInAFork(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "one\n"})
	c := mcpclient.StartHTTP(t, s, "--preset", "development", "--name", "agent")
	c.Text("exec", args{"command": "echo two >>a.txt"})
	if r := s.Agentfense("fork", "agent", "other"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	other := mcpclient.StartHTTP(t, s, "--name", "other")
	contains(t, "exec in the fork", other.Text("exec", args{"command": "cat a.txt; echo three >>a.txt"}), "one\ntwo\n")
	if got := c.Text("read", args{"path": "a.txt"}); got != "one\ntwo\n" {
		t.Errorf("the sandbox sees what the fork wrote: %q", got)
	}
}

// Over HTTP a client shows the token of this sandbox, and no web page gets in.
func TestToolsOverHTTP(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "one\n"})
	c := mcpclient.StartHTTP(t, s)
	if got := c.Text("read", args{"path": "a.txt"}); got != "one\n" {
		t.Errorf("read: %q", got)
	}
	contains(t, "exec", c.Text("exec", args{"command": "cat a.txt"}), "exit code 0", "one\n")
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	good := "Bearer " + strings.TrimSpace(string(token))
	_, port, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(c.Address, "http://"), "/mcp"), ":")
	for _, tt := range []struct {
		name, token, host, origin, path string
		want                            int
	}{
		{name: "without a token", want: http.StatusUnauthorized},
		{name: "with another token", token: good + "0", want: http.StatusUnauthorized},
		{name: "by a name that was made to lead here", token: good, host: "evil.example:" + port, want: http.StatusForbidden},
		{name: "of a web page", token: good, origin: "https://evil.example", want: http.StatusForbidden},
		{name: "of a page of another local server", token: good, origin: "http://127.0.0.1:1", want: http.StatusForbidden},
		{name: "of a sandboxed frame", token: good, origin: "null", want: http.StatusForbidden},
		{name: "to another path", token: good, path: "/", want: http.StatusNotFound},
		{name: "with the token", token: good, origin: "http://127.0.0.1:" + port, want: http.StatusOK},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
		r, err := http.NewRequest(http.MethodPost, strings.TrimSuffix(c.Address, "/mcp")+or(tt.path, "/mcp"), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if tt.token != "" {
			r.Header.Set("Authorization", tt.token)
		}
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		r.Host = or(tt.host, r.Host)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != tt.want {
			t.Errorf("a request %s: %s, want %d", tt.name, answer.Status, tt.want)
		}
	}
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

var asking = regexp.MustCompile(`(?m)^(\d+) .*notes\.md`)

// With --ask a refused command of the agent waits until a person answers, and no tool answers.
func TestARefusalWaitsForAPerson(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"notes.md": "n\n"})
	c := mcpclient.Start(t, s, nil, "--view", "notes.md", "--ask", "--name", "asks")
	done := make(chan string)
	go func() {
		r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "exec", Arguments: args{"command": "cat notes.md"}})
		if err != nil {
			done <- err.Error()
			return
		}
		done <- r.Content[len(r.Content)-1].(*mcp.TextContent).Text
	}()
	var id string
	for id == "" {
		select {
		case got := <-done:
			t.Fatalf("the command did not wait: %q", got)
		default:
		}
		if m := asking.FindStringSubmatch(s.Agentfense("policy", "ask", "asks").Stdout); m != nil {
			id = m[1]
		}
	}
	if r := s.Agentfense("policy", "ask", "asks", "--answer", id, "allow"); r.Code != 0 {
		t.Errorf("answer %s: %+v", id, r)
	}
	if got := <-done; got != "n\n" {
		t.Errorf("the command that waited: %q", got)
	}
}

// The tool ask puts a question to the person, grants nothing itself, and asks for nothing that no
// person should be able to answer.
func TestAnAgentAsksThePerson(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "a\n", "b.txt": "b\n", ".env": "KEY=1\n", "view/x": "x\n"})
	s.Write("answer.sh", `read ask
case $ask in
*'"need":"write"'*b.txt*|*b.txt*'"need":"write"'*) echo deny ;;
*) echo allow ;;
esac
`)
	c := mcpclient.Start(t, s, nil, "--view", "view/", "--allow-net", "a.example", "--ask-timeout", "10m", "--name", "asks")
	call := func(a args) string {
		t.Helper()
		texts, _ := c.Call("ask", a)
		return strings.Join(texts, "\n")
	}
	for want, a := range map[string]args{
		"reason: want":                 {"path": "a.txt", "permission": "write", "reason": " "},
		"reason: want a":               {"path": "a.txt", "permission": "write", "reason": strings.Repeat("x", 301)},
		"want path and permission":     {"reason": "r"},
		"want read or write":           {"path": "a.txt", "permission": "none", "reason": "r"},
		"want one file":                {"path": ".", "permission": "write", "reason": "r"},
		"permission: only with path":   {"host": "b.example", "permission": "read", "reason": "r"},
		"no answer can permit this":    {"path": ".env", "permission": "read", "reason": "r"},
		".agentfense.yaml: no answer":  {"path": ".agentfense.yaml", "permission": "write", "reason": "r"},
		"permitted already: read of":   {"path": "a.txt", "permission": "read", "reason": "r"},
		"permitted already: conn":      {"host": "a.example", "reason": "r"},
		"want one name in lower case,": {"host": "*.b.example", "reason": "r"},
		`host "10.0.0.1": want one`:    {"host": "10.0.0.1", "reason": "r"},
		`"scope"`:                      {"path": "a.txt", "permission": "write", "reason": "r", "scope": "sandbox"},
	} {
		contains(t, fmt.Sprint(a), call(a), want)
	}
	if asks := s.Agentfense("policy", "ask", "asks").Stdout; asks != "" {
		t.Errorf("a person is asked: %s", asks)
	}

	// ask asks, and the person answers.
	answered := func(a args, want string, answer ...string) string {
		t.Helper()
		done := make(chan string)
		go func() { done <- call(a) }()
		var m []string
		testenv.Eventually(t, "the question is put", func() bool {
			m = regexp.MustCompile(`(?m)^(\d+) +\S+ +(.*)$`).FindStringSubmatch(s.Agentfense("policy", "ask", "asks").Stdout)
			return m != nil
		})
		contains(t, "the question", m[2], want)
		if r := s.Agentfense(append([]string{"policy", "ask", "asks", "--answer", m[1]}, answer...)...); r.Code != 0 {
			t.Errorf("answer: %+v", r)
		}
		return <-done
	}
	write := func(file string) string { return c.Text("exec", args{"command": "echo x >>" + file + " && echo done"}) }
	got := answered(args{"path": "a.txt", "permission": "write", "reason": "to fix\x1b[2J it"},
		`write "/a.txt": requested by the agent, which says "to fix\x1b[2J it" (now: read, by `, "allow")
	contains(t, "for a time", got, "allowed for 10 minutes: write of /a.txt")
	contains(t, "what was allowed", write("a.txt"), "done")
	contains(t, "the sandbox", s.Agentfense("inspect", "asks").Stdout, "until 20")
	got = answered(args{"host": "b.example", "reason": "docs"}, `connect to "b.example": requested by the agent, which says "docs"`, "allow", "--project")
	contains(t, "for the project", got, `allowed in this sandbox: connections to "b.example"`)
	got = answered(args{"path": "b.txt", "permission": "write", "reason": "r"}, "write", "deny")
	contains(t, "denied", got, "refused, or not answered in time")
	contains(t, "asked again", call(args{"path": "b.txt", "permission": "write", "reason": "r"}), "the user was not asked")
	contains(t, "what was denied", write("b.txt"), "refused: open b.txt")
	contains(t, "audit", s.Agentfense("audit", "asks").Stdout, `requested: "to fix\x1b[2J it"`, "write /a.txt: allowed (once) by policy ask")

	// A caller that leaves withdraws its question.
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		testenv.Eventually(t, "the question is put", func() bool { return s.Agentfense("policy", "ask", "asks").Stdout != "" })
		cancel()
	}()
	if _, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "ask", Arguments: args{"path": "view/x", "permission": "read", "reason": "r"}}); err == nil {
		t.Error("a question that was withdrawn has an answer")
	}
	testenv.Eventually(t, "the question is withdrawn", func() bool { return s.Agentfense("policy", "ask", "asks").Stdout == "" })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	// A hook answers, too.
	s.Agentfense("stop", "asks")
	c = mcpclient.Start(t, s, nil, "--ask-hook", "sh answer.sh", "--name", "asks")
	contains(t, "by the hook", call(args{"path": "view/x", "permission": "read", "reason": "r"}), "allowed for 10 minutes")
	contains(t, "by the hook", call(args{"path": "b.txt", "permission": "write", "reason": "r"}), "refused")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	s.Agentfense("stop", "asks")
	c = mcpclient.Start(t, s, nil, "--ask=false", "--name", "asks")
	contains(t, "without --ask", call(args{"path": "b.txt", "permission": "write", "reason": "r"}), "the user must start the server with --ask")
}

// With --board an agent locks paths and exchanges messages with those of other sandboxes of the
// directory. Without it, no tool does anything there.
func TestAgentsShareABoard(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "one\n", "hidden": "x"})
	if r := s.Agentfense("run", "--detach", "--preset", "full-access", "--name", "other"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	c := mcpclient.Start(t, s, nil, "--preset", "full-access", "--hide", "hidden", "--board", "--name", "agent")
	s.Agentfense("lock", "other", "hidden")
	contains(t, "lock", c.Text("lock", args{"paths": []string{"a.txt", s.Source + "/new"}, "for_seconds": 600}), "locked: 2")
	if r := s.Agentfense("exec", "other", "--", "sh", "-c", "echo x > a.txt"); r.Code == 0 {
		t.Error("the lock does not hold")
	}
	locks := c.Text("locks", args{})
	contains(t, "locks", locks, `"own":true,"path":"a.txt"`, `"path":"new"`, `"sandbox":"other"`)
	if strings.Contains(locks, "hidden") {
		t.Errorf("locks tells of a hidden path: %s", locks)
	}
	if texts, isError := c.Call("lock", args{"paths": []string{"hidden"}}); !isError || !strings.Contains(texts[0], "may not write it") {
		t.Errorf("lock of a hidden path: %q", texts)
	}
	contains(t, "post", c.Text("post", args{"topic": "status", "text": "edits a.txt"}), "message 1")
	s.Agentfense("board", "post", "other", "ok")
	contains(t, "messages", c.Text("messages", args{"after": 1, "wait_seconds": 30}), `"by":"user","sandbox":"other"`, `"text":"ok"`, `"next":2`)
	contains(t, "board read", s.Agentfense("board", "read").Stdout, "agent (agent) status: edits a.txt")
	contains(t, "unlock", c.Text("unlock", args{"all": true}), "unlocked")
	if err := c.Close(); err != nil {
		t.Error(err)
	}

	c = mcpclient.Start(t, s, nil, "--preset", "full-access", "--name", "plain")
	for tool, a := range map[string]args{"lock": {"paths": []string{"a.txt"}}, "locks": {}, "post": {"text": "x"}, "messages": {}, "unlock": {"all": true}} {
		if texts, isError := c.Call(tool, a); !isError || !strings.Contains(texts[0], "start the server with --board") {
			t.Errorf("%s without a board: %q", tool, texts)
		}
	}
	s.Agentfense("stop", "other")
}

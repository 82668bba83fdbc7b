package docs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/wire"
)

// The ids of the documents.
const (
	codebaseID = "cb_0123456789abcdef"
	sandboxID  = "sb_0123456789abcdef"
	forkID     = "sb_fedcba9876543210"
	sessionID  = "sess_0123456789abcdef"
	txID       = "tx_0123456789abcdef"
)

// stage is a server, on which each example finds what the documents suppose
// (api/examples.txt).
type stage struct {
	*wire.Server
	grpc   wire.GRPC
	home   string // of the server's state
	linked string // a directory of the host
	data   string // another, which sandboxes may mount
}

func newStage(t *testing.T) *stage {
	t.Helper()
	testenv.FUSE(t)
	testenv.Bwrap(t)
	home, data := t.TempDir(), t.TempDir()
	cmd := exec.Command(binary, "serve")
	cmd.Env = slices.Concat(os.Environ(), wire.AnyPorts, []string{"AGENTFENSE_HOME=" + home, "AGENTFENSE_SANDBOX_SYNC=manual", "AGENTFENSE_NETWORK_ALLOW=example.org @pypi", "AGENTFENSE_MOUNTS_ROOTS=" + data})
	var log bytes.Buffer
	cmd.Stderr = &log
	server, err := wire.Serve(cmd, home)
	if err != nil {
		t.Fatal(err, log.String())
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, log.String())
		}
	})
	client, err := wire.Dial(server.Addr, server.Token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Conn.Close() })
	return &stage{Server: server, grpc: client, home: home, linked: t.TempDir(), data: data}
}

// call makes a call that succeeds and returns the id that it answers, if any.
func (s *stage) call(t *testing.T, name string, requests ...string) string {
	t.Helper()
	id, _ := wire.Find(s.answer(t, name, requests...), "id")
	return id
}

// answer makes a call that succeeds and returns its answer.
func (s *stage) answer(t *testing.T, name string, requests ...string) string {
	t.Helper()
	call, err := wire.Call(name)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.grpc.One(context.Background(), call, requests...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return answer
}

// play makes a codebase, and where an example needs them a sandbox and a
// session, and returns what puts their ids in place of the documents', and back.
func (s *stage) play(t *testing.T, example string) (there, back *strings.Replacer) {
	t.Helper()
	cb := s.call(t, "CreateCodebase", `{"name":"demo","ownerId":"me"}`)
	s.call(t, "UploadTree", `{"metadata":{"codebaseId":"`+cb+`","filePath":"README.md"}}`, `{"data":"aGVsbG8K"}`,
		`{"metadata":{"filePath":"src/main.go"}}`, `{"data":"cGFja2FnZSBtYWluCg=="}`,
		`{"metadata":{"filePath":"src/old.go"}}`, `{"data":"cGFja2FnZSBtYWluCg=="}`)
	pairs := []string{codebaseID, cb, "/srv/demo", s.linked, "/srv/data", s.data}
	if ofHistory.MatchString(example) {
		return replacers(s.applied(t, strings.Contains(strings.ToLower(example), "redo")))
	}
	if ofCommits.MatchString(example) {
		return replacers(s.committed(t))
	}
	if strings.Contains(example, sandboxID) || strings.Contains(example, sessionID) {
		sb := s.call(t, "CreateSandbox", `{"codebaseId":"`+cb+`","permissions":[{"pattern":"**","permission":"PERMISSION_WRITE"}],"allowNet":["example.org"],"askTimeout":"60s"}`)
		t.Cleanup(func() {
			if call, err := wire.Call("DestroySandbox"); err == nil {
				_, _ = s.grpc.One(context.Background(), call, `{"sandboxId":"`+sb+`"}`) // an example may have done it
			}
		})
		s.call(t, "StartSandbox", `{"sandboxId":"`+sb+`"}`)
		if regexp.MustCompile(`Snapshot|CompareStates|/snapshots|/restore\b|/compare`).MatchString(example) {
			s.call(t, "CreateSnapshot", `{"sandboxId":"`+sb+`","label":"start"}`)
		}
		s.call(t, "Exec", `{"sandboxId":"`+sb+`","command":"echo '// changed' >> src/main.go; rm src/old.go"}`)
		if strings.HasPrefix(example, "Logs") {
			s.call(t, "Exec", `{"sandboxId":"`+sb+`","command":"echo hello","detach":true}`)
		}
		if asking.MatchString(example) {
			s.ask(t, sb)
		}
		if onBoard.MatchString(example) {
			s.call(t, "LockPaths", `{"sandboxId":"`+sb+`","paths":["src"]}`)
			s.call(t, "PostMessage", `{"sandboxId":"`+sb+`","topic":"status","text":"I change the parser"}`)
		}
		session := s.call(t, "CreateSession", `{"sandboxId":"`+sb+`"}`)
		pairs = append(pairs, sandboxID, sb, sessionID, session)
		if strings.Contains(example, forkID) {
			pairs = append(pairs, forkID, s.fork(t, sb))
		}
		if regexp.MustCompile(`StartSandbox|UpdateSandbox|RestoreSnapshot|MergeSandbox|/start\b|/restore\b|/merge\b|PATCH`).MatchString(example) {
			s.call(t, "StopSandbox", `{"sandboxId":"`+sb+`"}`)
		}
	}
	return replacers(pairs)
}

// fork makes a fork of a sandbox that has changed notes.
func (s *stage) fork(t *testing.T, sandbox string) string {
	t.Helper()
	fork, err := wire.Find(s.answer(t, "ForkSandbox", `{"sandboxId":"`+sandbox+`","names":["fork"]}`), "sandboxes.0.id")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.call(t, "DestroySandbox", `{"sandboxId":"`+fork+`"}`) })
	s.call(t, "StartSandbox", `{"sandboxId":"`+fork+`"}`)
	s.call(t, "Exec", `{"sandboxId":"`+fork+`","command":"echo new > notes"}`)
	return fork
}

// replacers returns what puts the second of each pair in place of the first, and back.
func replacers(pairs []string) (there, back *strings.Replacer) {
	reversed := make([]string, len(pairs))
	for i, p := range pairs {
		reversed[len(pairs)-1-i] = p
	}
	return strings.NewReplacer(pairs...), strings.NewReplacer(reversed...)
}

// ofHistory are the examples for which changes were applied to a linked codebase.
var ofHistory = regexp.MustCompile(`ListTransactions|Undo|Redo|/transactions`)

// applied makes such a codebase and a sandbox of it, and returns what stands for their ids and that
// of the transaction.
func (s *stage) applied(t *testing.T, undone bool) (pairs []string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "src/main.go", "src/old.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("package main\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cb := s.call(t, "LinkCodebase", `{"name":"demo","ownerId":"me","path":"`+dir+`"}`)
	sb := s.call(t, "CreateSandbox", `{"codebaseId":"`+cb+`","permissions":[{"pattern":"**","permission":"PERMISSION_WRITE"}]}`)
	s.call(t, "StartSandbox", `{"sandboxId":"`+sb+`"}`)
	s.call(t, "Exec", `{"sandboxId":"`+sb+`","command":"echo '// changed' >> src/main.go; rm src/old.go"}`)
	s.call(t, "StopSandbox", `{"sandboxId":"`+sb+`"}`)
	s.call(t, "Apply", `{"sandboxId":"`+sb+`"}`)
	list, err := wire.Call("ListTransactions")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.grpc.One(t.Context(), list, `{"sandboxId":"`+sb+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	tx := regexp.MustCompile(`tx_[0-9a-f]{16}`).FindString(answer)
	if undone {
		s.call(t, "Undo", `{"transactionId":"`+tx+`"}`)
	}
	return []string{codebaseID, cb, sandboxID, sb, txID, tx}
}

// ofCommits are the examples for which a command committed in a clean repository.
var ofCommits = regexp.MustCompile(`ListCommits|ApplyCommits|/commits\b`)

// committed makes a linked repository and such a sandbox of it, and returns what stands for their
// ids.
func (s *stage) committed(t *testing.T) (pairs []string) {
	t.Helper()
	testenv.Overlay(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "src/main.go"), []byte("package main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := "git init -q -b main . && git add . && git -c user.name=Host -c user.email=host@example.org commit -qm first"
	make := exec.Command("sh", "-c", script)
	make.Dir = dir
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cb := s.call(t, "LinkCodebase", `{"name":"demo","ownerId":"me","path":"`+dir+`"}`)
	sb := s.call(t, "CreateSandbox", `{"codebaseId":"`+cb+`","permissions":[{"pattern":"**","permission":"PERMISSION_WRITE"}],"git":"clean"}`)
	s.call(t, "StartSandbox", `{"sandboxId":"`+sb+`"}`)
	s.call(t, "Exec", `{"sandboxId":"`+sb+`","command":"echo '// changed' >> src/main.go; git -c user.name=Agent -c user.email=agent@example.org commit -qam 'Change main'"}`)
	s.call(t, "StopSandbox", `{"sandboxId":"`+sb+`"}`)
	return []string{codebaseID, cb, sandboxID, sb}
}

// onBoard are the examples for which a path is locked and there is a message.
var onBoard = regexp.MustCompile(`UnlockPaths|ListLocks|ReadMessages|WatchMessages|GetBoard|/locks\b|/messages\b|/board\b`)

// asking are the examples for which a program waits for an answer.
var asking = regexp.MustCompile(`ListAsks|AnswerAsk|/asks\b`)

// ask has a program open a file that it may only see, and returns when it waits for the answer.
func (s *stage) ask(t *testing.T, sandbox string) {
	t.Helper()
	s.call(t, "SetPolicy", `{"sandboxId":"`+sandbox+`","permissions":[{"pattern":"**","permission":"PERMISSION_WRITE"},{"pattern":"/README.md","permission":"PERMISSION_VIEW","priority":1}]}`)
	exec, err := wire.Call("Exec")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.grpc.One(t.Context(), exec, `{"sandboxId":"`+sandbox+`","command":"cat README.md"}`) // it ends with the test
	}()
	t.Cleanup(func() { <-done })
	s.call(t, "ListAsks", `{"sandboxId":"`+sandbox+`","wait":"60s"}`)
}

func TestEveryCallOfTheReference(t *testing.T) {
	s := newStage(t)
	shown := map[string]bool{}
	for _, b := range blocksOf(t, "docs/api.md") {
		call, err := wire.Call(b.heading)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		shown[b.heading] = true
		t.Run(b.heading, func(t *testing.T) {
			there, back := s.play(t, b.heading+b.text)
			var requests []string
			want := ""
			for line := range strings.Lines(b.text) {
				if request, is := strings.CutPrefix(line, "> "); is {
					requests = append(requests, there.Replace(request))
				} else {
					want += strings.TrimPrefix(line, "< ")
				}
			}
			if b.heading == "WatchView" {
				defer s.keepChanging(t, there.Replace(sandboxID))()
			}
			answer, err := s.answerOf(t.Context(), call, requests)
			if got := back.Replace(answer); err != nil || !matches(want, got) {
				t.Errorf("%s: %v, got:\n%s\nwant:\n%s", b, err, got, want)
			}
		})
	}
	for _, call := range wire.Calls() {
		if !shown[string(call.Name())] {
			t.Errorf("docs/api.md has no example of %s", call.Name())
		}
	}
}

// answerOf is all that a call answers, of one without an end the first message.
func (s *stage) answerOf(ctx context.Context, call protoreflect.MethodDescriptor, requests []string) (string, error) {
	if call.Name() != "WatchView" && call.Name() != "WatchMessages" {
		return s.grpc.One(ctx, call, requests...)
	}
	answer, enough := "", errors.New("enough")
	err := s.grpc.Do(ctx, call, requests, func(text string) error {
		answer = text + "\n"
		return enough
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return answer, err
}

// keepChanging makes a file after another in a sandbox until what it returns is
// called.
func (s *stage) keepChanging(t *testing.T, sandbox string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	exec, err := wire.Call("Exec")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = s.grpc.One(ctx, exec, fmt.Sprintf(`{"sandboxId":"%s","command":"mkdir src/new%d.go; sleep 0.1"}`, sandbox, i))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// endless are the requests whose answers do not end.
var endless = regexp.MustCompile(`audit:stream|view:watch|messages:watch`)

func TestEveryRequestOfREST(t *testing.T) {
	testenv.Command(t, "curl")
	s := newStage(t)
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".local/share/agentfense"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.home, "token"), filepath.Join(home, ".local/share/agentfense/token")); err != nil {
		t.Fatal(err)
	}
	preamble := "" // where the server and the token are
	for _, b := range blocksOf(t, requests) {
		if b.language != "sh" {
			continue
		}
		if preamble == "" {
			preamble = strings.Replace(b.text, "http://127.0.0.1:8080", s.URL, 1)
			continue
		}
		t.Run(b.heading, func(t *testing.T) {
			there, _ := s.play(t, b.text)
			dir := t.TempDir()
			config, want := "fail-with-body\nsilent\nshow-error\nmax-time = 60\n", 0
			if endless.MatchString(b.text) {
				config, want = strings.Replace(config, "60", "1", 1), 28 // curl's for a time-out
			}
			for name, content := range map[string]string{".curlrc": config, "main.go": "package main\n", "run.sh": "#!/bin/sh\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", preamble+there.Replace(b.text))
			cmd.Dir = dir
			cmd.WaitDelay = 10 * time.Second
			cmd.Env = append(os.Environ(), "CURL_HOME="+dir, "HOME="+home)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != want {
				t.Errorf("%s: %v, exit code %d:\n%s", b, err, code, out)
			}
		})
	}
	if got := undocumented(t); len(got) > 0 {
		t.Errorf("docs/rest.md has no example of %q", got)
	}
}

// undocumented are the routes that docs/rest.md does not head.
func undocumented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, call := range wire.Calls() {
		for _, r := range wire.Routes(call) {
			twice := r.Verb == "POST" && strings.Contains(r.Template, "file_path") // as PUT
			pattern := regexp.MustCompile(`\\\{(\w+)(=\\\*\\\*)?\\\}`).ReplaceAllString(regexp.QuoteMeta(r.Template), `\{\w+\}`)
			if !regexp.MustCompile("(?m)^### `"+r.Verb+" "+pattern+"`$").Match(text) && !twice {
				missing = append(missing, r.Verb+" "+r.Template)
			}
		}
	}
	return missing
}

package serve_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// A client of the API that was there before agentfense knows numbers, not our
// files: here messages are bytes, made and read by hand.

// raw passes bytes through.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

func (raw) Name() string { return "proto" }

// message is one on its way to the wire.
type message []byte

func (m message) text(n protowire.Number, s string) message {
	return protowire.AppendString(protowire.AppendTag(m, n, protowire.BytesType), s)
}

func (m message) in(n protowire.Number, inner message) message { return m.text(n, string(inner)) }

func (m message) number(n protowire.Number, v int64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), uint64(v))
}

// pair is an entry of a map.
func pair(key, value string) message { return message(nil).text(1, key).text(2, value) }

// seconds is a google.protobuf.Duration.
func seconds(s, nanos int64) message { return message(nil).number(1, s).number(2, nanos) }

// fields are a message that came: by number, the last one's value for a single
// one.
type fields map[protowire.Number][]any

func read(t *testing.T, data []byte) fields {
	t.Helper()
	got := fields{}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			t.Fatalf("no message: %x", data)
		}
		data = data[n:]
		var value any
		switch kind {
		case protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(data)
			value = int64(v)
		case protowire.BytesType:
			var v []byte
			v, n = protowire.ConsumeBytes(data)
			value = string(v)
		default:
			t.Fatalf("field %d has the kind %d", number, kind)
		}
		if n < 0 {
			t.Fatalf("no message: %x", data)
		}
		got[number] = append(got[number], value)
		data = data[n:]
	}
	return got
}

// is fails the test unless the fields are these: a string, a number, a pattern,
// or nil for none. Those from 100 on are additions, which the client does not
// know.
func (f fields) is(t *testing.T, what string, want map[protowire.Number]any) {
	t.Helper()
	for number := range f {
		if _, known := want[number]; !known && number < 100 {
			t.Errorf("%s has a field %d: %q", what, number, f[number])
		}
	}
	for number, value := range want {
		got := f[number]
		ok := false
		switch v := value.(type) {
		case nil:
			ok = len(got) == 0
		case *regexp.Regexp:
			s, isText := "", false
			if len(got) == 1 {
				s, isText = got[0].(string)
			}
			ok = isText && v.MatchString(s)
		case message:
			ok = len(got) == 1 && got[0] == string(v)
		case int:
			ok = len(got) == 1 && got[0] == int64(v)
		default:
			ok = len(got) == 1 && got[0] == v
		}
		if !ok {
			t.Errorf("%s: field %d is %q, want %v", what, number, got, value)
		}
	}
}

func (f fields) text(number protowire.Number) string {
	if len(f[number]) == 0 {
		return ""
	}
	s, _ := f[number][0].(string)
	return s
}

var someTime = regexp.MustCompile(`(?s)^\x08.`) // seconds come first

// call makes a call of bytes and returns the answers.
func (s *server) raw(method string, requests ...message) ([]fields, error) {
	s.t.Helper()
	stream, err := s.conn.NewStream(s.t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/sandbox.v1."+method, grpc.ForceCodec(raw{}))
	if err != nil {
		return nil, err
	}
	for _, r := range requests {
		data := []byte(r)
		if err := stream.SendMsg(&data); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	var answers []fields
	for {
		var data []byte
		if err := stream.RecvMsg(&data); errors.Is(err, io.EOF) {
			return answers, nil
		} else if err != nil {
			return answers, err
		}
		answers = append(answers, read(s.t, data))
	}
}

// one is raw of a call that succeeds with one answer.
func (s *server) one(method string, requests ...message) fields {
	s.t.Helper()
	answers, err := s.raw(method, requests...)
	if err != nil || len(answers) != 1 {
		s.t.Fatalf("%s: %d answers, %v", method, len(answers), err)
	}
	return answers[0]
}

func TestAClientOfTheFormerAPI(t *testing.T) {
	s := start(t)
	none := message(nil)
	id := func(value string) message { return none.text(1, value) }

	// Codebases and files.
	cb := s.one("CodebaseService/CreateCodebase", none.text(1, "demo").text(2, "user_1a2b3c4d"))
	cb.is(t, "Codebase", map[protowire.Number]any{
		1: regexp.MustCompile(`^cb_[0-9a-f]{16}$`), 2: "demo", 3: "user_1a2b3c4d", 4: nil, 5: nil, 6: someTime, 7: someTime,
	})
	content := strings.Repeat("0123456789abcdef", 10_000) // three pieces
	sum := md5.Sum([]byte(content))
	chunks := []message{none.in(1, none.text(1, cb.text(1)).text(2, "src/big.txt").number(3, int64(len(content))))}
	for rest := content; rest != ""; {
		n := min(len(rest), 65536)
		chunks, rest = append(chunks, none.text(2, rest[:n])), rest[n:]
	}
	s.one("CodebaseService/UploadFiles", chunks...).is(t, "UploadResult", map[protowire.Number]any{
		1: cb.text(1), 2: "src/big.txt", 3: len(content), 4: hex.EncodeToString(sum[:]),
	})
	s.one("CodebaseService/UploadFiles", none.in(1, none.text(1, cb.text(1)).text(2, "/.env")), none.text(2, "SECRET=1\n"))
	pieces, err := s.raw("CodebaseService/DownloadFile", id(cb.text(1)).text(2, "src/big.txt"))
	if err != nil || len(pieces) != 3 || len(pieces[0].text(1)) != 65536 || len(pieces[1].text(1)) != 65536 || pieces[0].text(1)+pieces[1].text(1)+pieces[2].text(1) != content {
		t.Errorf("downloaded %d pieces, %v", len(pieces), err)
	}
	listed := s.one("CodebaseService/ListFiles", id(cb.text(1)).number(3, 1))
	wantFiles := []map[protowire.Number]any{
		{1: ".env", 2: ".env", 3: nil, 4: 9, 5: someTime},
		{1: "src", 2: "src", 3: 1, 4: nil, 5: someTime},
		{1: "src/big.txt", 2: "big.txt", 3: nil, 4: len(content), 5: someTime},
	}
	if len(listed[1]) != len(wantFiles) {
		t.Fatalf("listed %q", listed)
	}
	for i, want := range wantFiles {
		read(t, []byte(listed[1][i].(string))).is(t, "FileInfo", want)
	}
	s.one("CodebaseService/GetCodebase", id(cb.text(1))).is(t, "Codebase", map[protowire.Number]any{
		1: cb.text(1), 2: "demo", 3: "user_1a2b3c4d", 4: len(content) + 9, 5: 2, 6: someTime, 7: someTime,
	})

	// A sandbox, with the rules of the preset agent-safe.
	var rules []message
	for _, r := range []struct {
		pattern              string
		permission, priority int64
	}{{"**/*", 3, 0}, {"/output/**", 4, 10}, {"/tmp/**", 4, 10}, {"**/.git/**", 1, 50}, {"**/.env*", 1, 100}, {"**/secrets/**", 1, 100}} {
		rules = append(rules, none.text(1, r.pattern).number(2, 1).number(3, r.permission).number(4, r.priority))
	}
	request := none.text(1, cb.text(1)).in(3, seconds(3600, 0)).in(4, pair("a", "1")).number(5, 1).in(7, none.number(1, 256<<20).number(2, 50000).number(4, 100))
	for _, r := range rules {
		request = request.in(2, r)
	}
	limits := none.number(1, 256<<20).number(2, 50000).number(4, 100)
	sandbox := func(what string, got fields, status int, times map[protowire.Number]any) {
		t.Helper()
		want := map[protowire.Number]any{
			1: regexp.MustCompile(`^sb_[0-9a-f]{16}$`), 2: cb.text(1), 4: status, 5: pair("a", "1"), 6: someTime, 7: nil, 8: nil, 9: someTime, 10: 1, 12: limits,
		}
		maps.Copy(want, times)
		sent := got[3]
		delete(got, 3)
		got.is(t, what, want)
		for i, r := range rules {
			trimmed := bytes.ReplaceAll(r, message(nil).number(4, 0), nil) // a zero is not sent
			if len(sent) != len(rules) || sent[i] != string(trimmed) {
				t.Errorf("%s: the rules came back as %q, want %q", what, sent, rules)
				break
			}
		}
	}
	made := s.one("SandboxService/CreateSandbox", request)
	sb := made.text(1)
	sandbox("created", made, 1, nil)
	for call, asked := range map[string]message{"StopSandbox": id(sb), "Exec": id(sb).text(2, "true"), "CreateSession": id(sb)} {
		_, err := s.raw("SandboxService/"+call, asked)
		wantCode(t, err, codes.FailedPrecondition, "sandbox is not running")
	}
	sandbox("started", s.one("SandboxService/StartSandbox", id(sb)), 2, map[protowire.Number]any{7: someTime})
	_, err = s.raw("SandboxService/StartSandbox", id(sb))
	wantCode(t, err, codes.FailedPrecondition, "sandbox is already running")

	// Commands: sandbox_id 1, command 2, stdin 3, env 4, workdir 5, timeout 6.
	took := regexp.MustCompile(`(?s)^[\x08\x10].`)
	s.one("SandboxService/Exec", id(sb).text(2, "cat; echo $A; pwd; ls -A; cat .env >&2; exit 3").text(3, "in\n").in(4, pair("A", "b")).text(5, "/workspace").in(6, seconds(5, 500_000_000))).
		is(t, "ExecResult", map[protowire.Number]any{
			1: "in\nb\n/workspace\nsrc\n", 2: regexp.MustCompile("No such file"), 3: 3, 4: took,
		})
	s.one("SandboxService/Exec", id(sb).text(2, "true")).is(t, "ExecResult", map[protowire.Number]any{1: nil, 2: nil, 3: nil, 4: took})
	_, err = s.raw("SandboxService/Exec", id(sb).text(2, "sleep 100").in(6, seconds(0, 100_000_000)))
	wantCode(t, err, codes.DeadlineExceeded)
	output, err := s.raw("SandboxService/ExecStream", id(sb).text(2, "printf out; exit 3"))
	if err != nil || len(output) != 2 {
		t.Fatalf("ExecStream: %q, %v", output, err)
	}
	output[0].is(t, "ExecOutput", map[protowire.Number]any{1: 1, 2: "out"})
	output[1].is(t, "the last ExecOutput", map[protowire.Number]any{1: nil, 2: nil})
	output, err = s.raw("SandboxService/ExecStream", id(sb).text(2, "printf err >&2"))
	if err != nil || len(output) != 2 {
		t.Fatalf("ExecStream: %q, %v", output, err)
	}
	output[0].is(t, "ExecOutput", map[protowire.Number]any{1: 2, 2: "err"})

	// Sessions: a shell is /bin/sh.
	session := func(got fields, status int, closed any) string {
		t.Helper()
		got.is(t, "Session", map[protowire.Number]any{
			1: regexp.MustCompile(`^sess_[0-9a-f]{16}$`), 2: sb, 3: status, 4: "/bin/sh", 5: someTime, 6: closed,
		})
		return got.text(1)
	}
	in := session(s.one("SandboxService/CreateSession", id(sb).in(3, pair("GIVEN", "yes"))), 1, nil)
	s.one("SandboxService/SessionExec", id(in).text(2, "cd src; A=1"))
	s.one("SandboxService/SessionExec", id(in).text(2, "pwd; echo $A$GIVEN; echo err >&2; false").in(3, seconds(10, 0))).is(t, "ExecResult", map[protowire.Number]any{
		1: "/workspace/src\n1yes\n", 2: "err\n", 3: 1, 4: took,
	})
	output, err = s.raw("SandboxService/SessionExecStream", id(in).text(2, "printf $A"))
	if err != nil || len(output) != 2 {
		t.Fatalf("SessionExecStream: %q, %v", output, err)
	}
	output[0].is(t, "ExecOutput", map[protowire.Number]any{1: 1, 2: "1"})
	_, err = s.raw("SandboxService/SessionExec", id(in).text(2, "sleep 100").in(3, seconds(0, 200_000_000)))
	wantCode(t, err, codes.DeadlineExceeded)
	if list := s.one("SandboxService/ListSessions", id(sb)); len(list[1]) != 1 {
		t.Errorf("listed %q", list)
	} else {
		session(read(t, []byte(list[1][0].(string))), 1, nil)
	}
	s.one("SandboxService/SessionExec", id(in).text(2, "exit 0"))
	session(s.one("SandboxService/GetSession", id(in)), 2, someTime)
	_, err = s.raw("SandboxService/SessionExec", id(in).text(2, "true"))
	wantCode(t, err, codes.FailedPrecondition, "session is closed")
	s.one("SandboxService/DestroySession", id(in)).is(t, "Empty", nil)
	_, err = s.raw("SandboxService/GetSession", id(in))
	wantCode(t, err, codes.NotFound)

	// The end.
	_, err = s.raw("CodebaseService/DeleteCodebase", id(cb.text(1)))
	wantCode(t, err, codes.FailedPrecondition)
	sandbox("stopped", s.one("SandboxService/StopSandbox", id(sb)), 3, map[protowire.Number]any{7: someTime, 8: someTime})
	s.one("SandboxService/DestroySandbox", id(sb)).is(t, "Empty", nil)
	_, err = s.raw("SandboxService/GetSandbox", id(sb))
	wantCode(t, err, codes.NotFound)
	s.one("CodebaseService/DeleteCodebase", id(cb.text(1))).is(t, "Empty", nil)
	_, err = s.raw("CodebaseService/GetCodebase", id(cb.text(1)))
	wantCode(t, err, codes.NotFound)
}

func TestPagesOfTheFormerAPI(t *testing.T) {
	s := start(t)
	none := message(nil)
	var want []string
	for i := range 103 {
		made := s.one("CodebaseService/CreateCodebase", none.text(1, fmt.Sprint(i)).text(2, "pager"))
		want = append(want, made.text(1))
	}
	s.one("CodebaseService/CreateCodebase", none.text(1, "other").text(2, "other"))
	for _, c := range []struct {
		size  int64
		pages []int
	}{{0, []int{100, 3}}, {50, []int{50, 50, 3}}, {103, []int{103}}, {5000, []int{103}}} {
		var got []string
		var pages []int
		for token := ""; ; {
			page := s.one("CodebaseService/ListCodebases", none.text(1, "pager").number(2, c.size).text(3, token))
			pages = append(pages, len(page[1]))
			for _, one := range page[1] {
				got = append(got, read(t, []byte(one.(string))).text(1))
			}
			if token = page.text(2); token == "" {
				break
			}
		}
		if fmt.Sprint(pages) != fmt.Sprint(c.pages) || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("pages of %d: %v, want %v; %d codebases", c.size, pages, c.pages, len(got))
		}
	}
}

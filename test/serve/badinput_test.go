package serve_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/test/wire"
)

// things are one of each, of the owner "me".
type things struct{ codebase, sandbox, session string }

func (s *server) things() things {
	s.t.Helper()
	cb := s.codebase(map[string]string{"f": "content\n", "d/g": "more\n"})
	sb := s.sandbox(cb)
	made, err := s.sandboxes.CreateSession(s.t.Context(), &sandboxv1.CreateSessionRequest{SandboxId: sb})
	return things{cb, sb, must(s.t, made, err).Id}
}

// valid is a request of each call that would succeed. Its ids are missing.
var valid = map[protoreflect.Name]object{
	"UploadFiles":       {"metadata": object{"filePath": "new"}},
	"UploadTree":        {"metadata": object{"filePath": "new"}},
	"DownloadFile":      {"filePath": "f"},
	"DeleteFile":        {"filePath": "f"},
	"Exec":              {"command": "true"},
	"ExecStream":        {"command": "true"},
	"SessionExec":       {"command": "true"},
	"ExplainPolicy":     {"path": "f"},
	"SetPolicy":         {"permissions": []object{{"pattern": "**", "permission": "PERMISSION_WRITE"}}},
	"ChangeHosts":       {"grant": []string{"example.com"}},
	"SessionExecStream": {"command": "true"},
	"UpdateSandbox":     {"clear": []string{"secrets"}},
	"GrantPath":         {"path": "x", "permission": "PERMISSION_READ"},
	"AnswerAsk":         {"askId": "1"},
	"Attach":            {"start": object{"argv": []string{"true"}}},
	"LockPaths":         {"paths": []string{"f"}},
	"UnlockPaths":       {"all": true},
	"PostMessage":       {"text": "hello"},
	"DeleteSnapshot":    {"snapshot": "s1"},
	"RestoreSnapshot":   {"snapshot": "s1"},
	"ForkSandbox":       {"names": []string{"fork"}},
	"ApplyCommits":      {"toBranch": "b", "gitUser": object{"name": "n", "email": "n@example.com"}},
	"MergeSandbox":      {"fromSandboxId": "sb_0123456789abcdef"},
}

// eitherID are the calls that take one of two ids: without any, they name both. ListSandboxes
// takes one to narrow the list.
var eitherID = map[protoreflect.Name]string{
	"ListTransactions": "sandbox_id, codebase_id: exactly one is required",
	"Undo":             "transaction_id, sandbox_id: exactly one is required",
	"Redo":             "transaction_id, sandbox_id: exactly one is required",
}

// withID is a valid request with an id, if the call needs one.
func withID(call protoreflect.MethodDescriptor, field, id string) string {
	request := valid[call.Name()]
	if field == "" {
		return request.with(field, nil).String()
	}
	for _, inner := range []string{"metadata", "start"} {
		if of, ok := request[inner].(object); ok {
			return object{inner: of.with(field, id)}.String()
		}
	}
	return request.with(field, id).String()
}

// idOf is which id a call needs: the field's name, as the API has it and as JSON
// has it, and what it names.
func (x things) idOf(call protoreflect.MethodDescriptor) (field, jsonName, id string) {
	message := call.Input()
	for _, inner := range []protoreflect.Name{"metadata", "start"} {
		if f := message.Fields().ByName(inner); f != nil && f.Message() != nil {
			message = f.Message()
		}
	}
	for name, id := range map[protoreflect.Name]string{"codebase_id": x.codebase, "sandbox_id": x.sandbox, "session_id": x.session} {
		if f := message.Fields().ByName(name); f != nil {
			return string(name), f.JSONName(), id
		}
	}
	return "", "", ""
}

func TestIDs(t *testing.T) {
	s := start(t, withREST)
	mine, f := s.things(), s.faces()
	stranger := s.facesOf(s.tokenOf("other", store.AllScopes))
	for _, call := range wire.Calls() {
		field, jsonName, id := mine.idOf(call)
		if field == "" {
			continue
		}
		t.Run(string(call.Name()), func(t *testing.T) {
			if call.Name() != "ListSandboxes" { // there it narrows the list
				f.refused(t, call, withID(call, jsonName, ""), codes.InvalidArgument, cmp.Or(eitherID[call.Name()], field+": is required"))
			}
			kind, _, _ := strings.Cut(field, "_")
			prefix, _, _ := strings.Cut(id, "_")
			unknown := prefix + "_0123456789abcdef"
			for _, wrong := range []string{
				unknown, prefix + "_", prefix + "_0123456789ABCDEF", prefix + "_0123456789abcdef0", "x", "..", ".", "../../etc/passwd",
				id + "/", id + " ", id + "\x00", "\x00", "%2e%2e", "*", "' OR 1=1 --", "日本", strings.Repeat("x", 10_000),
			} {
				f.refused(t, call, withID(call, jsonName, wrong), codes.NotFound)
			}
			f.refused(t, call, withID(call, jsonName, unknown), codes.NotFound, kind+` "`+unknown+`": no such `+kind)
			// Somebody else's is told of as one that nobody has.
			stranger.refused(t, call, withID(call, jsonName, id), codes.NotFound, kind+` "`+id+`": no such `+kind)
		})
	}
	if got := s.exec(mine.sandbox, "cat f d/g"); got != "content\nmore\n" {
		t.Errorf("afterwards the files are %q", got)
	}
}

// large is more than a message may have.
var large = strings.Repeat("x", 17<<20)

func TestBadFields(t *testing.T) {
	s := start(t, withREST)
	mine, f := s.things(), s.faces()
	create := object{"codebaseId": mine.codebase}
	_, err := f.grpc.One(t.Context(), callNamed(t, "CreateSandbox"), create.with("name", "taken").String())
	must(t, 0, err)
	exec := object{"sandboxId": mine.sandbox, "command": "true"}
	session := object{"sandboxId": mine.sandbox}
	inSession := object{"sessionId": mine.session, "command": "true"}
	rules := func(rule object) []object { return []object{{"pattern": "ok", "permission": "PERMISSION_READ"}, rule} }
	long := strings.Repeat("x", 5000)
	many := object{}
	for i := range 100_000 {
		many[fmt.Sprint("VARIABLE", i)] = "x"
	}
	const invalid = codes.InvalidArgument
	for _, c := range []struct {
		call    string
		request object
		code    codes.Code
		words   string
	}{
		{"CreateCodebase", object{"ownerId": "me"}, invalid, "name: is required"},
		{"CreateCodebase", object{"name": "x"}, invalid, "owner_id: is required"},
		{"CreateCodebase", object{"name": long, "ownerId": "me"}, invalid, "name: "},
		{"CreateCodebase", object{"name": "x", "ownerId": long}, invalid, "owner_id: "},
		{"LinkCodebase", object{"name": "x", "ownerId": "me"}, invalid, "path: is required"},
		{"LinkCodebase", object{"path": "/srv", "ownerId": "me"}, invalid, "name: is required"},
		{"LinkCodebase", object{"path": "/srv", "name": "x"}, invalid, "owner_id: is required"},
		{"LinkCodebase", object{"path": "srv", "name": "x", "ownerId": "me"}, invalid, "path: "},
		{"LinkCodebase", object{"path": "/srv\x00", "name": "x", "ownerId": "me"}, invalid, "path: "},
		{"LinkCodebase", object{"path": "/no/such/directory", "name": "x", "ownerId": "me"}, codes.NotFound, "path: "},
		{"LinkCodebase", object{"path": "/etc/passwd", "name": "x", "ownerId": "me"}, invalid, "path: "},
		{"ListCodebases", object{"pageSize": -1}, invalid, "page_size: "},
		{"ListCodebases", object{"pageToken": "nonsense"}, invalid, "page_token: "},
		{"ListCodebases", object{"pageToken": long}, invalid, "page_token: "},
		{"ListSandboxes", object{"pageSize": -1}, invalid, "page_size: "},
		{"ListSandboxes", object{"pageToken": "nonsense"}, invalid, "page_token: "},

		{"CreateSandbox", create.with("permissions", rules(object{"pattern": "["})), invalid, "permissions[1].pattern: "},
		{"CreateSandbox", create.with("permissions", rules(object{"pattern": ""})), invalid, "permissions[1].pattern: "},
		{"CreateSandbox", create.with("permissions", rules(object{"pattern": "../x"})), invalid, "permissions[1].pattern: "},
		{"CreateSandbox", create.with("permissions", rules(object{"pattern": "a\x00b"})), invalid, "permissions[1].pattern: "},
		{"CreateSandbox", create.with("permissions", rules(object{"pattern": "x", "permission": 9})), invalid, "permissions[1].permission: "},
		{"CreateSandbox", create.with("permissions", rules(object{"pattern": "x", "type": -1})), invalid, "permissions[1].type: "},
		{"CreateSandbox", create.with("permissions", slices.Repeat(rules(object{"pattern": "x"}), 9_000)), invalid, "permissions: "},
		{"CreateSandbox", create.with("expiresIn", "-1s"), invalid, "expires_in: "},
		{"CreateSandbox", create.with("labels", object{"": "x"}), invalid, "labels: "},
		{"CreateSandbox", create.with("labels", object{"x": strings.Repeat("x", 70_000)}), invalid, "labels: "},
		{"CreateSandbox", create.with("runtime", 9), invalid, "runtime: "},
		{"CreateSandbox", create.with("image", "debian"), invalid, "image: "},
		{"CreateSandbox", create.with("resources", object{"memoryBytes": -1}), invalid, "resources.memory_bytes: "},
		{"CreateSandbox", create.with("resources", object{"cpuQuota": 1}), invalid, "resources.cpu_quota: "},
		{"CreateSandbox", create.with("resources", object{"pidsLimit": -1}), invalid, "resources.pids_limit: "},
		{"CreateSandbox", create.with("resources", object{"pidsLimit": 1 << 40}), invalid, "resources.pids_limit: "},
		{"CreateSandbox", create.with("resources", object{"cpuShares": 1}), invalid, "resources.cpu_shares: "},
		{"CreateSandbox", create.with("resources", object{"diskBytes": -1}), invalid, "resources.disk_bytes: "},
		{"CreateSandbox", create.with("resources", object{"diskInodes": -1}), invalid, "resources.disk_inodes: "},
		{"CreateSandbox", create.with("name", "../x"), invalid, "name: "},
		{"CreateSandbox", create.with("name", mine.sandbox), invalid, "name: "},
		{"CreateSandbox", create.with("name", "taken"), codes.AlreadyExists, "taken"},

		{"Exec", exec.with("command", nil), invalid, "command: is required"},
		{"Exec", exec.with("command", "a\x00b"), invalid, "command: "},
		{"Exec", exec.with("command", strings.Repeat("x", 200_000)), invalid, "command: "},
		{"Exec", exec.with("timeout", "-1s"), invalid, "timeout: "},
		{"Exec", exec.with("env", object{"": "x"}), invalid, "env: "},
		{"Exec", exec.with("env", object{"A=B": "x"}), invalid, "env: "},
		{"Exec", exec.with("env", object{"A": "a\x00b"}), invalid, "env: "},
		{"Exec", exec.with("env", object{"A": strings.Repeat("x", 200_000)}), invalid, "env: "},
		{"Exec", exec.with("env", many), invalid, "env: "},
		{"CreateSession", session.with("env", many), invalid, "env: "},
		{"CreateSession", session.with("shell", "cat"), invalid, "shell: "},
		{"Exec", exec.with("workdir", "a\x00b"), invalid, "workdir: "},
		{"Exec", exec.with("workdir", ".."), invalid, "workdir: "},
		{"Exec", exec.with("workdir", "../../etc"), invalid, "workdir: "},
		{"Exec", exec.with("workdir", "/workspace/../etc"), invalid, "workdir: "},
		{"Exec", exec.with("workdir", "absent"), invalid, "workdir: "},
		{"Exec", exec.with("workdir", "f"), invalid, "workdir: "},
		{"Exec", exec.with("workdir", long), invalid, "workdir: "},
		{"Exec", exec.with("stdin", "a").with("stdinBytes", "YQ=="), invalid, "stdin_bytes: "},
		{"ExecStream", exec.with("command", nil), invalid, "command: is required"},
		{"ExecStream", exec.with("workdir", "../x"), invalid, "workdir: "},
		{"ExecStream", exec.with("workdir", "absent"), invalid, "workdir: "},
		{"ExecStream", exec.with("timeout", "-1s"), invalid, "timeout: "},

		{"CreateSession", session.with("shell", "/no/shell"), invalid, "shell: "},
		{"CreateSession", session.with("shell", "a\x00b"), invalid, "shell: "},
		{"CreateSession", session.with("shell", "/workspace"), invalid, "shell: "},
		{"CreateSession", session.with("shell", long), invalid, "shell: "},
		{"CreateSession", session.with("env", object{"A=B": "x"}), invalid, "env: "},
		{"SessionExec", inSession.with("command", nil), invalid, "command: is required"},
		{"SessionExec", inSession.with("command", "a\x00b"), invalid, "command: "},
		{"SessionExec", inSession.with("timeout", "-1s"), invalid, "timeout: "},
		{"SessionExecStream", inSession.with("command", nil), invalid, "command: is required"},
		{"SessionExecStream", inSession.with("timeout", "-1s"), invalid, "timeout: "},

		{"Attach", object{"stdin": "eA=="}, invalid, "first message must be start or resume"},
		{"Attach", object{"stdinEnd": true}, invalid, "first message must be start or resume"},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox}}, invalid, "argv: is required"},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox, "argv": []string{""}}}, invalid, "argv: is required"},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox, "argv": []string{"true", "a\x00b"}}}, invalid, "argv: "},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox, "argv": []string{strings.Repeat("x", 200_000)}}}, invalid, "argv: "},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox, "argv": []string{"true"}, "env": object{"A=B": ""}}}, invalid, "env: "},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox, "argv": []string{"true"}, "workdir": "../x"}}, invalid, "workdir: "},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox, "argv": []string{"true"}, "workdir": "absent"}}, invalid, "workdir: "},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox, "argv": []string{"true"}, "timeout": "-1s"}}, invalid, "timeout: "},
		{"Attach", object{"start": object{"sandboxId": mine.sandbox, "argv": []string{"true"}, "terminal": object{"rows": 70_000}}}, invalid, "rows"},
		{"Attach", object{"resume": object{"execId": "exec-1"}}, invalid, "sandbox_id: is required"},
		{"Attach", object{"resume": object{"sandboxId": mine.sandbox}}, invalid, "exec_id: is required"},
		{"Attach", object{"resume": object{"sandboxId": "../x", "execId": "exec-1"}}, codes.NotFound, "no such sandbox"},
		{"Attach", object{"resume": object{"sandboxId": mine.sandbox, "execId": "exec-99"}}, codes.NotFound, "no such exec"},
		{"Attach", object{"resume": object{"sandboxId": mine.sandbox, "execId": "../x"}}, codes.NotFound, "no such exec"},
		{"Attach", object{"resume": object{"sandboxId": mine.sandbox, "execId": "exec-1", "stdoutOffset": "-1"}}, invalid, "stdout_offset"},

		{"SetPolicy", object{"sandboxId": mine.sandbox, "permissions": rules(object{"pattern": "{"})}, invalid, "permissions[1].pattern: "},
		{"SetPolicy", object{"sandboxId": mine.sandbox, "permissions": rules(object{"pattern": "x", "permission": 5})}, invalid, "permissions[1].permission: "},
		{"ChangeHosts", object{"sandboxId": mine.sandbox}, invalid, "grant or revoke"},
		{"ChangeHosts", object{"sandboxId": mine.sandbox, "grant": []string{"https://example.com"}}, invalid, "grant: "},
		{"ChangeHosts", object{"sandboxId": mine.sandbox, "revoke": []string{"*.com"}}, invalid, "revoke: "},
		{"ChangeHosts", object{"sandboxId": mine.sandbox, "grant": []string{"example.com"}, "grantFor": "-1s"}, invalid, "grant_for: "},
		{"ChangeHosts", object{"sandboxId": mine.sandbox, "grant": []string{"example.com"}}, codes.PermissionDenied, "network.allow"},
		{"CreateSandbox", object{"codebaseId": mine.codebase, "allowNet": []string{"a b"}}, invalid, "allow_net: "},
		{"ExplainPolicy", object{"sandboxId": mine.sandbox, "path": "../x"}, invalid, "path: "},
		{"ExplainPolicy", object{"sandboxId": mine.sandbox, "path": "a\x00b"}, invalid, "path: "},
		{"ListView", object{"sandboxId": mine.sandbox, "path": "../x"}, invalid, "path: "},
		{"ListView", object{"sandboxId": mine.sandbox, "path": "a\x00b"}, invalid, "path: "},
		{"ListView", object{"sandboxId": mine.sandbox, "path": "absent"}, codes.NotFound, "absent"},
		{"ReadView", object{"sandboxId": mine.sandbox, "path": "../x"}, invalid, "path: "},
		{"ReadView", object{"sandboxId": mine.sandbox, "path": "absent"}, codes.NotFound, "absent"},
		{"ReadView", object{"sandboxId": mine.sandbox, "path": "d"}, codes.FailedPrecondition, "directory"},
		{"WatchView", object{"sandboxId": mine.sandbox, "path": "../x"}, invalid, "path: "},
		{"WatchView", object{"sandboxId": mine.sandbox, "path": "a\x00b"}, invalid, "path: "},
		{"Diff", object{"sandboxId": mine.sandbox, "pageSize": -1}, invalid, "page_size: "},
		{"Diff", object{"sandboxId": mine.sandbox, "pageToken": "../x"}, invalid, "page_token: "},
		{"Diff", object{"sandboxId": mine.sandbox, "paths": []string{"ok", "../x"}}, invalid, "paths[1]: "},
		{"Diff", object{"sandboxId": mine.sandbox, "paths": []string{"absent"}}, codes.NotFound, "absent"},
		{"Apply", object{"sandboxId": mine.sandbox, "paths": []string{"a\x00b"}}, invalid, "paths[0]: "},
		{"Apply", object{"sandboxId": mine.sandbox, "paths": []string{"absent"}}, codes.NotFound, "absent"},
		{"Discard", object{"sandboxId": mine.sandbox, "paths": []string{"a/../../b"}}, invalid, "paths[0]: "},
		{"Discard", object{"sandboxId": mine.sandbox, "paths": []string{"absent"}}, codes.NotFound, "absent"},
		{"Audit", object{"sandboxId": mine.sandbox, "events": []string{"nonsense"}}, invalid, "events[0]: "},
	} {
		f.refused(t, callNamed(t, c.call), c.request.String(), c.code, c.words)
	}
}

func TestMessagesThatAreTooLarge(t *testing.T) {
	s := start(t, withREST)
	f := s.faces()
	for call, request := range map[string]object{
		"CreateCodebase": {"name": large, "ownerId": "me"},
		"CreateSandbox":  {"codebaseId": large},
		"Exec":           {"sandboxId": "sb_0123456789abcdef", "command": large},
		"SessionExec":    {"sessionId": "sess_0123456789abcdef", "command": large},
		"SetPolicy":      {"sandboxId": "sb_0123456789abcdef", "permissions": []object{{"pattern": large}}},
	} {
		_, err := f.grpc.One(t.Context(), callNamed(t, call), request.String())
		wantCode(t, err, codes.ResourceExhausted, "larger than max")
		route := wire.Routes(callNamed(t, call))[0]
		if answer := f.byRoute(t, t.Context(), route, request.String()); answer.Status != 413 || !strings.HasPrefix(answer.Body, `{"code":8,"message":"the request's body is larger than`) {
			t.Errorf("%s over REST: %d %.200s", call, answer.Status, answer.Body)
		}
	}
	answer, err := f.rest.Do(t.Context(), "GET", "/v1/codebases/"+strings.Repeat("x", 70_000), nil)
	if must(t, answer, err).Status != 431 {
		t.Errorf("a long path: %d %.200s", answer.Status, answer.Body)
	}
}

package serve_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agentfense/agentfense/test/wire"
)

// normal makes an answer the same each time.
func normal(body string, names map[string]string) string {
	for id, name := range names {
		body = strings.ReplaceAll(body, id, name)
	}
	body = regexp.MustCompile(`"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`).ReplaceAllString(body, `"TIME"`)
	return regexp.MustCompile(`"duration":"\d+\.\d+s"`).ReplaceAllString(body, `"duration":"TOOK"`)
}

// former is an answer without the fields that agentfense has added.
func former(t *testing.T, verb, path, body string) string {
	t.Helper()
	for _, call := range wire.Calls() {
		for _, route := range wire.Routes(call) {
			if route.Matches(verb, path) && strings.HasPrefix(body, "{") && !strings.HasPrefix(body, `{"code":`) {
				text, err := withoutAdditions(call.Output(), json.RawMessage(body))
				return must(t, string(text), err)
			}
		}
	}
	return body
}

// withoutAdditions drops the fields whose numbers are from 100 up; all else
// stays as it is written.
func withoutAdditions(m protoreflect.MessageDescriptor, text json.RawMessage) (json.RawMessage, error) {
	if m == nil || strings.HasPrefix(string(m.FullName()), "google.") || string(text) == "null" {
		return text, nil
	}
	in := json.NewDecoder(bytes.NewReader(text))
	var out []string
	open, err := in.Token()
	for err == nil && in.More() {
		of, name := m, ""
		if open == json.Delim('{') {
			var key json.Token
			if key, err = in.Token(); err != nil {
				break
			}
			field := m.Fields().ByJSONName(key.(string))
			if field == nil {
				return nil, fmt.Errorf("%s has no field %s", m.Name(), key)
			}
			name, of = strconv.Quote(key.(string))+":", nil
			if field.Message() != nil && !field.IsMap() {
				of = field.Message()
			}
			if field.Number() >= 100 {
				name = ""
			}
		}
		var value json.RawMessage
		if err = in.Decode(&value); err == nil {
			value, err = withoutAdditions(of, value)
		}
		if name != "" || open == json.Delim('[') {
			out = append(out, name+string(value))
		}
	}
	all := strings.Join(out, ",")
	if open == json.Delim('[') {
		return json.RawMessage("[" + all + "]"), err
	}
	return json.RawMessage("{" + all + "}"), err
}

// What REST answers, to the byte but for what agentfense has added: the names in lowerCamelCase and
// their order, zero values, 64-bit numbers as strings, enums by name.
func TestTheBytesOfREST(t *testing.T) {
	s := start(t, withREST)
	names := map[string]string{} // id -> how it is called here
	find := regexp.MustCompile(`"id":"((cb|sb|sess)_[0-9a-f]{16})"`)
	const codebase = `{"id":"CB","name":"demo","ownerId":"me","size":"0","fileCount":0,"createdAt":"TIME","updatedAt":"TIME"}`
	const rules = `"permissions":[{"pattern":"**/*","type":"PATTERN_TYPE_UNSPECIFIED","permission":"PERMISSION_READ","priority":0},` +
		`{"pattern":"/out","type":"PATTERN_TYPE_DIRECTORY","permission":"PERMISSION_WRITE","priority":-2}]`
	sandbox := func(status, started, stopped string) string {
		return `{"id":"SB","codebaseId":"CB",` + rules + `,"status":"SANDBOX_STATUS_` + status + `","labels":{"a":"1"},"createdAt":"TIME","startedAt":` + started +
			`,"stoppedAt":` + stopped + `,"expiresAt":"TIME","runtime":"RUNTIME_TYPE_BWRAP","image":"","resources":{"memoryBytes":"268435456","cpuQuota":"50000",` +
			`"cpuShares":"0","pidsLimit":"100"}}`
	}
	result := func(stdout, stderr, code string) string {
		return `{"stdout":"` + stdout + `","stderr":"` + stderr + `","exitCode":` + code + `,"duration":"TOOK"}`
	}
	session := func(status, closed string) string {
		return `{"id":"SESS","sandboxId":"SB","status":"SESSION_STATUS_` + status + `","shell":"/bin/sh","createdAt":"TIME","closedAt":` + closed + `}`
	}
	file := func(path, name, dir, size string) string {
		return `{"path":"` + path + `","name":"` + name + `","isDir":` + dir + `,"size":"` + size + `","modifiedAt":"TIME"}`
	}
	refused := func(code, message string) string {
		return `{"code":` + code + `,"message":"` + message + `","details":[]}`
	}
	because := func(code, message, reason string) string {
		return strings.Replace(refused(code, message), "[]",
			`[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"`+reason+`","domain":"agentfense","metadata":{}}]`, 1)
	}
	notRunning := strings.Replace(refused("9", "sandbox SB: sandbox is not running"), "[]",
		`[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SANDBOX_NOT_RUNNING","domain":"agentfense","metadata":{"status":"pending"}}]`, 1)
	noCommand := strings.Replace(refused("3", "command: is required"), "[]",
		`[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"COMMAND_NOT_STARTED","domain":"agentfense","metadata":{"started":"false"}}]`, 1)
	for _, c := range []struct {
		verb, path, body string
		status           int
		want             string
	}{
		// Both spellings of a name are read, and what is not known is not minded.
		{"POST", "/v1/codebases", `{"name":"demo","owner_id":"me","unknown":{"a":[1]}}`, 200, codebase},
		{"GET", "/v1/codebases/CB", "", 200, codebase},
		{"GET", "/v1/codebases?ownerId=me", "", 200, `{"codebases":[` + codebase + `],"nextPageToken":""}`},
		{"GET", "/v1/codebases?owner_id=nobody", "", 200, `{"codebases":[],"nextPageToken":""}`},
		{"GET", "/v1/codebases/CB/files", "", 200, `{"files":[]}`},
		{"PUT", "/v1/codebases/CB/files/d/f.txt", "hello\n", 200, `{"codebaseId":"CB","filePath":"d/f.txt","size":"6","checksum":"b1946ac92492d2347c6235b4d2611184"}`},
		{"GET", "/v1/codebases/CB/files/d/f.txt", "", 200, "hello\n"},
		{"GET", "/v1/codebases/CB/files", "", 200, `{"files":[` + file("d", "d", "true", "0") + `]}`},
		{"GET", "/v1/codebases/CB/files?path=/d&recursive=true", "", 200, `{"files":[` + file("d/f.txt", "f.txt", "false", "6") + `]}`},
		{"GET", "/v1/codebases/CB/files?path=absent", "", 404, refused("5", `list /absent: no such file or directory`)},

		// 64-bit numbers are read as strings and as numbers, enums by name and number.
		{
			"POST", "/v1/sandboxes", `{"codebaseId":"CB","permissions":[{"pattern":"**/*","permission":3},{"pattern":"/out","type":"PATTERN_TYPE_DIRECTORY",` +
				`"permission":"PERMISSION_WRITE","priority":-2}],"expiresIn":"3600.5s","labels":{"a":"1"},"runtime":"RUNTIME_TYPE_BWRAP",` +
				`"resources":{"memoryBytes":268435456,"cpu_quota":"50000","pidsLimit":"100"}}`, 200, sandbox("PENDING", "null", "null"),
		},
		{"POST", "/v1/sandboxes/SB/exec", `{"command":"true"}`, 400, notRunning},
		{"POST", "/v1/sandboxes/SB/stop", "", 400, notRunning},
		{"POST", "/v1/sandboxes/SB/sessions", "{}", 400, notRunning},
		{"POST", "/v1/sandboxes/SB/start", "", 200, sandbox("RUNNING", `"TIME"`, "null")},
		{"POST", "/v1/sandboxes/SB/start", "{}", 400, because("9", "sandbox SB: sandbox is already running", "SANDBOX_ALREADY_RUNNING")},
		{"GET", "/v1/sandboxes/SB", "", 200, sandbox("RUNNING", `"TIME"`, "null")},
		{"GET", "/v1/sandboxes?codebaseId=CB", "", 200, `{"sandboxes":[` + sandbox("RUNNING", `"TIME"`, "null") + `],"nextPageToken":""}`},
		{"POST", "/v1/sandboxes/SB/exec", `{"command":"cat d/f.txt; cat; echo $A >&2; exit 3","stdin":"in","env":{"A":"b"},"timeout":"5s"}`, 200, result(`hello\nin`, `b\n`, "3")},
		{"POST", "/v1/sandboxes/SB/exec", `{"command":"printf 'a<b>&\u00e9\u2028'"}`, 200, result("a<b>&é\u2028", "", "0")},
		{"POST", "/v1/sandboxes/SB/exec", `{"command":"sleep 100","timeout":"0.2s"}`, 504, refused("4", "command timed out after 200ms")},
		{"POST", "/v1/sandboxes/SB/exec", `{}`, 400, noCommand},
		{"POST", "/v1/sandboxes/SB/exec", ``, 400, noCommand},

		{"GET", "/v1/sandboxes/SB/sessions", "", 200, `{"sessions":[]}`},
		{"POST", "/v1/sandboxes/SB/sessions", `{"shell":"","env":{"G":"1"}}`, 200, session("ACTIVE", "null")},
		{"GET", "/v1/sessions/SESS", "", 200, session("ACTIVE", "null")},
		{"GET", "/v1/sandboxes/SB/sessions", "", 200, `{"sessions":[` + session("ACTIVE", "null") + `]}`},
		{"POST", "/v1/sessions/SESS/exec", `{"command":"cd d; A=$G"}`, 200, result("", "", "0")},
		{"POST", "/v1/sessions/SESS/exec", `{"command":"pwd; echo $A >&2","timeout":"10s"}`, 200, result(`/workspace/d\n`, `1\n`, "0")},
		{"POST", "/v1/sessions/SESS/exec", `{"command":"exit 4"}`, 200, result("", "", "4")},
		{"GET", "/v1/sessions/SESS", "", 200, session("CLOSED", `"TIME"`)},
		{"POST", "/v1/sessions/SESS/exec", `{"command":"true"}`, 400, because("9", "session SESS: session is closed", "SESSION_CLOSED")},
		{"DELETE", "/v1/sessions/SESS", "", 200, `{}`},
		{"GET", "/v1/sessions/SESS", "", 404, because("5", `session \"SESS\": no such session`, "SESSION_NOT_FOUND")},

		{"DELETE", "/v1/codebases/CB", "", 400, refused("9", "delete codebase CB: used by 1 sandboxes: destroy them first")},
		{"POST", "/v1/sandboxes/SB/stop", "{}", 200, sandbox("STOPPED", `"TIME"`, `"TIME"`)},
		{"DELETE", "/v1/sandboxes/SB", "", 200, `{}`},
		{"GET", "/v1/sandboxes/SB", "", 404, because("5", `sandbox \"SB\": no such sandbox`, "SANDBOX_NOT_FOUND")},
		{"DELETE", "/v1/codebases/CB", "", 200, `{}`},
		{"GET", "/v1/codebases/CB", "", 404, because("5", `codebase \"CB\": no such codebase`, "CODEBASE_NOT_FOUND")},
	} {
		path, body := c.path, c.body
		for id, name := range names {
			path = strings.ReplaceAll(path, "/"+name, "/"+id)
			path, body = strings.ReplaceAll(path, "="+name, "="+id), strings.ReplaceAll(body, `"`+name+`"`, `"`+id+`"`)
		}
		status, got := s.call(c.verb, path, s.token, body)
		if made := find.FindStringSubmatch(got); made != nil {
			names[made[1]] = strings.ToUpper(made[2])
		}
		if got = normal(former(t, c.verb, path, got), names); status != c.status || got != c.want {
			t.Errorf("%s %s %s:\ngot  %d %s\nwant %d %s", c.verb, c.path, c.body, status, got, c.status, c.want)
		}
	}
}

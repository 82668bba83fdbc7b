package serve_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// call makes a request of REST and returns its status and body.
func (s *server) call(method, path, token, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(must(s.t, text, err))
}

// id makes something by REST and returns its id.
func (s *server) id(path, body string) string {
	s.t.Helper()
	code, text := s.call("POST", path, s.token, body)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(text), &made); code != 200 || err != nil || made.ID == "" {
		s.t.Fatalf("POST %s: %d %s", path, code, text)
	}
	return made.ID
}

func TestREST(t *testing.T) {
	s := start(t, withREST)
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if code, text := s.call("GET", path, "", ""); code != 200 {
			t.Errorf("GET %s: %d %s", path, code, text)
		}
	}
	if code, text := s.call("GET", "/v1/codebases", "", ""); code != 401 {
		t.Errorf("without a token: %d %s", code, text)
	}
	cb := s.id("/v1/codebases", `{"name":"app","ownerId":"me"}`)
	s.upload(cb, "f", "hello\n")
	sb := s.id("/v1/sandboxes", `{"codebaseId":"`+cb+`","permissions":[{"pattern":"**/*","permission":"PERMISSION_WRITE"}]}`)
	if code, text := s.call("POST", "/v1/sandboxes/"+sb+"/exec", s.token, `{"command":"true"}`); code != 400 || !strings.Contains(text, "sandbox is not running") {
		t.Errorf("exec before the start: %d %s", code, text)
	}
	if code, text := s.call("POST", "/v1/sandboxes/"+sb+"/start", s.token, ""); code != 200 || !strings.Contains(text, "SANDBOX_STATUS_RUNNING") {
		t.Errorf("start: %d %s", code, text)
	}
	code, text := s.call("POST", "/v1/sandboxes/"+sb+"/exec", s.token, `{"command":"cat f; exit 3"}`)
	var result struct {
		Stdout   string
		ExitCode int
	}
	if err := json.Unmarshal([]byte(text), &result); code != 200 || err != nil || result.Stdout != "hello\n" || result.ExitCode != 3 {
		t.Errorf("exec: %d %s", code, text)
	}
	session := s.id("/v1/sandboxes/"+sb+"/sessions", `{}`)
	if code, text := s.call("POST", "/v1/sessions/"+session+"/exec", s.token, `{"command":"echo in"}`); code != 200 || !strings.Contains(text, `in\n`) {
		t.Errorf("session exec: %d %s", code, text)
	}
	for _, path := range []string{"/v1/sessions/" + session, "/v1/sandboxes/" + sb, "/v1/codebases/" + cb} {
		if code, text := s.call("DELETE", path, s.token, ""); code != 200 {
			t.Errorf("DELETE %s: %d %s", path, code, text)
		}
		if code, text := s.call("GET", path, s.token, ""); code != 404 {
			t.Errorf("GET %s afterwards: %d %s", path, code, text)
		}
	}
}

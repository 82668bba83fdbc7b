package network_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// trusting has agentfense trust the authority, and commands not know of it.
func trusting(t *testing.T, authority string, args ...string) []string {
	t.Helper()
	t.Setenv("SSL_CERT_FILE", authority)
	return args
}

// show answers with the method, the path and the protocol of a request.
func show(_ *testing.T, mux *http.ServeMux) {
	mux.HandleFunc("/show/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the client notices
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+string(body)+"\n")
	})
}

// Programs take the sandbox's certificates without settings, and get what the rules allow.
func TestProgramsThroughOpenedConnections(t *testing.T) {
	testenv.Command(t, "curl", "git")
	authority := internet(t, show, pypi)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		script := `
for v in --http1.1 --http2; do
	curl -sS $v -w '%{http_version}\n' https://example.com/show/a
	curl -sS $v https://example.com/show/no
	curl -sS $v -d body https://example.com/show/post
done
env -u CURL_CA_BUNDLE -u SSL_CERT_FILE curl -sS https://example.com/show/a
curl -sS http://example.com/show/a
curl -sS http://example.com/show/no
git clone -q https://example.com/repo.git /tmp/repo && cat /tmp/repo/README
git -C /tmp/repo push -q origin HEAD:other 2>&1 | grep -c 403
`
		expected := strings.Repeat(`GET /show/a 
VERSION
agentfense: GET "/show/no" is not allowed by --net-allow of example.com:443; it needs --net-allow 'example.com:443=GET /show/no'
POST /show/post body
`, 2) + `GET /show/a 
GET /show/a 
agentfense: GET "/show/no" is not allowed by --net-allow of example.com:80; it needs --net-allow 'example.com:80=GET /show/no'
hello
1
`
		expected = strings.Replace(strings.Replace(expected, "VERSION", "1.1", 1), "VERSION", "2", 1)
		r := s.Run(script, trusting(t, authority,
			"--net-allow", "example.com=GET /show/a", "--net-allow", "example.com=POST /show/post", "--allow-net", "example.com",
			"--net-allow", "example.com=GET /repo.git/info/refs", "--net-allow", "example.com=POST /repo.git/git-upload-pack",
			"--net-allow", "example.com:80=GET /show/a")...)
		want(t, r, expected)
		contains(t, "the summary", r.Stderr, "agentfense: network: ", "requests", `GET "/show/no" is not allowed by --net-allow of example.com:443`)
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "example.com port 443 by example.com:443,intercept, ")
	})
}

// The runtimes that are here trust the sandbox's certificates, too.
func TestRuntimesThroughOpenedConnections(t *testing.T) {
	authority := internet(t)
	for program, command := range map[string]string{
		"/usr/bin/python3": `/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen("https://example.com/").read().decode(), end="")'`,
		"node":             `node -e 'require("https").get("https://example.com/", r => r.pipe(process.stdout))'`,
	} {
		t.Run(filepath.Base(program), func(t *testing.T) {
			testenv.Command(t, program)
			s := harness.New(t, binary, nil)
			want(t, s.Run(command, trusting(t, authority, "--allow-net", "example.com,intercept")...), "this is example.com\n")
		})
	}
}

// Of a preset that is intercepted, only requests that read pass.
func TestARegistryIsReadOnly(t *testing.T) {
	testenv.Command(t, "npm", "node")
	authority := internet(t, npm)
	s := harness.New(t, binary, nil)
	r := s.Run(`mkdir /tmp/app && cd /tmp/app && npm install --silent --no-audit --fetch-retries=0 --no-fund --no-update-notifier greeting && ls node_modules
curl -sS -o /dev/null -w '%{http_code}\n' -X PUT -d '{}' https://registry.npmjs.org/greeting
curl -sS -o /dev/null -w '%{http_code}\n' https://registry.npmjs.org/@scope%2fgreeting
`, trusting(t, authority, "--allow-net", "@npm,intercept", "--env", "HOME=/tmp", "--env", "npm_config_globalconfig=/dev/null")...)
	contains(t, "npm", r.Stdout, "greeting\n403\n404\n")
	contains(t, "the summary", r.Stderr, `PUT "/greeting" is not allowed by --net-allow of registry.npmjs.org:443`)
}

// A rule that intercepts cannot be led around: by other names, by other forms of a path, by other
// protocols, by what a program brings itself.
func TestRulesForRequestsHold(t *testing.T) {
	authority := internet(t, show)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`
at=$(getent hosts example.com | cut -d' ' -f1)
try() { curl -sS --path-as-is -o /dev/null -w '%{http_code}\n' "$@" 2>/dev/null || echo refused; }
for v in --http1.1 --http2; do
	for path in /show/ok /show/no /Show/ok //show/ok /show//ok /show/./ok /show/x/../ok /show/ok/../no /show/%6fk /show%2fok /show/ok%2f..%2fno /show/ok%00 '/show/ok;/x' /show/ok/ '/no?/show/ok' '/show/ok?/no'; do
		echo "$path $(try $v "https://example.com$path")"
	done
	try $v -X POST https://example.com/show/ok
	try $v -X get https://example.com/show/ok
	try $v -X TRACE https://example.com/show/ok
	try $v -H 'X-HTTP-Method-Override: DELETE' https://example.com/show/ok
	try $v -H 'Host: other.example.net' https://example.com/show/ok
	try $v -H 'Host: example.com:8443' https://example.com/show/ok
done
try --http1.1 -H 'Upgrade: websocket' -H 'Connection: Upgrade' https://example.com/show/ok
try --resolve other.example.net:443:$at https://other.example.net/show/ok
try -k https://$at/show/ok
try --proxytunnel --proxy https://example.com:443 --proxy-cacert /run/agentfense/ca.pem https://other.example.net/
try https://other.example.net/show/ok
try -k https://other.example.net/show/ok
try --cacert /run/agentfense/ca.pem https://other.example.net/show/ok
`, trusting(t, authority, "--net-allow", "example.com=GET /show/ok", "--allow-net", "other.example.net")...)
		paths := `/show/ok 200
/show/no 403
/Show/ok 403
//show/ok 403
/show//ok 403
/show/./ok 403
/show/x/../ok 403
/show/ok/../no 403
/show/%6fk 403
/show%2fok 403
/show/ok%2f..%2fno 403
/show/ok%00 403
/show/ok;/x 403
/show/ok/ 403
/no?/show/ok 403
/show/ok?/no 200
403
403
405
403
403
403
`
		want(t, r, paths+paths+"403\n"+"000\nrefused\n000\nrefused\n000\nrefused\n000\nrefused\n200\n000\nrefused\n")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout,
			`example.com port 443: GET "/show/ok%2f..%2fno" is not allowed by --net-allow of example.com:443`,
			`example.com port 443: POST "/show/ok" is not allowed by --net-allow of example.com:443`,
			`example.com port 443: HTTP names another host: "other.example.net"`, `example.com port 443: TLS names another server: "other.example.net"`,
			"example.com port 443: the method TRACE", "example.com port 443: method CONNECT", "example.com port 443: the header field X-Http-Method-Override")
	})
}

// A sandbox that was started without an intercepted host does not begin with one while it runs.
func TestInterceptionBeginsWithAStart(t *testing.T) {
	authority := internet(t, show)
	s := harness.New(t, binary, nil)
	if r := s.Agentfense(trusting(t, authority, "run", "--name", s.Name, "--detach", "--allow-net", "other.example.net", "--", "sleep", "1000")...); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	r := s.Agentfense("policy", "grant", s.Name, "--net", "example.com,intercept GET /show/a")
	if r.Code == 0 || !strings.Contains(r.Stderr, "works only after a new start") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	if r := s.Agentfense("exec", s.Name, "--", "curl", "-sS", "https://example.com/show/a"); r.Code == 0 {
		t.Errorf("it was let through: %s", r.Stdout)
	}
	testenv.Eventually(t, "the audit log says why", func() bool {
		return strings.Contains(s.Agentfense("audit", s.Name).Stdout, "the sandbox was started without an intercepted host")
	})
	if r := s.Agentfense("stop", s.Name); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	want(t, s.Agentfense("exec", s.Name, "--", "curl", "-sS", "https://example.com/show/a"), "GET /show/a \n")
}

// With interception, a program uses a secret at the host's own address.
func TestASecretOnTheProgramsOwnConnection(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		withSecret(t, authority)
		r := s.Run(`
first() { curl -sS "$@" 2>&1 | head -n1; }
first -H "Authorization: Bearer $API_KEY" https://example.com/reflect/
first -u "user:$API_KEY" https://example.com/reflect/
first -H 'Authorization: Bearer mine' https://example.com/reflect/
first -H "Authorization: Bearer $API_KEY" http://api-key.agentfense.internal/reflect/
curl -sS -o /dev/null -w '%{http_code}\n' -X DELETE -H "Authorization: Bearer $API_KEY" https://example.com/reflect/
curl -sS -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $API_KEY" https://other.example.net/reflect/
curl -sS -u "user:$API_KEY" -D- https://example.com/reflect/ | grep -aic 'x-form-0: \*\*\*\*'
`, "--secret", "API_KEY@example.com", "--secret-allow", "API_KEY=GET /reflect/**", "--allow-net", "example.com,intercept", "--allow-net", "other.example.net,intercept")
		want(t, r, "right=true\nright=true\nright=false\nright=true\n403\n403\n1\n")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "not allowed by --secret-allow of API_KEY", "the placeholder of secret API_KEY",
			"example.com port 443: a credential of the program's own was taken out: Authorization")
	})
}

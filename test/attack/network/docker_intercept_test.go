package network_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

const askAsSystem = "system"

// asSystem sends each request, METHOD URL, with API_KEY as its credential, trusts whom the system
// trusts, and prints the status, and the first line of the body if that is 200.
func asSystem(requests []string) int {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true}}
	for _, request := range requests {
		method, url, _ := strings.Cut(request, " ")
		q, err := http.NewRequest(method, url, nil)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if key := os.Getenv("API_KEY"); key != "" {
			q.Header.Set("Authorization", "Bearer "+key)
		}
		answer, err := client.Do(q)
		if err != nil {
			fmt.Println(reasonOf(err))
			continue
		}
		body, _ := io.ReadAll(answer.Body) // the caller compares it
		answer.Body.Close()
		first, _, _ := strings.Cut(string(body), "\n")
		if answer.StatusCode != http.StatusOK {
			first = ""
		}
		fmt.Println(strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", first)))
	}
	return 0
}

// imageWith makes an image of DockerImage and of files. A text that begins with "-> " makes a link.
func imageWith(t *testing.T, name string, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		full := filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		if target, isLink := strings.CutPrefix(content, "-> "); err == nil && isLink {
			err = os.Symlink(target, full)
		} else if err == nil {
			err = os.WriteFile(full, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	script := `id=$(docker create $2 /bin/true) && docker cp $3/. $id:/ && docker commit $id $1 && docker rm $id`
	if out, err := exec.Command("sh", "-ec", script, "sh", name, testenv.DockerImage, root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Programs in a container take the sandbox's certificates without settings, whatever system the
// image has, and go on trusting whom the image trusts, or this host if the image trusts nobody.
func TestOpenedConnectionsOfAContainer(t *testing.T) {
	authority := internet(t, show)
	testenv.Docker(t)
	t.Setenv("DOCKER_HOST", testenv.DockerDaemon(t))
	trusted, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	imageWith(t, "debian", map[string]string{"etc/ssl/certs/ca-certificates.crt": string(trusted)})
	imageWith(t, "alpine", map[string]string{"etc/ssl/certs/ca-certificates.crt": string(trusted), "etc/ssl/cert.pem": "-> certs/ca-certificates.crt"})
	imageWith(t, "fedora", map[string]string{
		"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": string(trusted),
		"etc/pki/tls/certs/ca-bundle.crt":                  "-> /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"etc/ssl/certs":                                    "-> ../pki/tls/certs",
		"etc/ssl/cert.pem":                                 "-> /not/there",
		"etc/pki/tls/cacert.pem/a-directory":               "",
	})
	for image, bundles := range map[string]string{
		"debian":            "/etc/ssl/certs/ca-certificates.crt",
		"alpine":            "/etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem",
		"fedora":            "/etc/pki/tls/certs/ca-bundle.crt /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		testenv.DockerImage: "/etc/ssl/certs/ca-certificates.crt",
	} {
		t.Run(strings.TrimSuffix(image, ":latest"), func(t *testing.T) {
			b := openedContainer(t, authority, image)
			b.trustsTheSandbox(bundles)
			switch image {
			case testenv.DockerImage:
				b.trustsThisHost()
				b.opensAndNothingElse()
			default:
				want(t, b.asSystem("", "GET https://other.example.net/"), "200 this is other.example.net\n")
			}
		})
	}
}

// openedContainer starts a container in which connections to example.com are opened.
func openedContainer(t *testing.T, authority, image string) box {
	t.Helper()
	withSecret(t, authority)
	b := box{harness.New(t, binary, nil), t}
	r := b.RunProgram(askAsSystem, nil, "--detach", "--runtime", "docker", "--image", image, "--secret", "API_KEY@example.com",
		"--net-allow", "example.com=GET /show/a", "--net-allow", "example.com=GET /reflect/", "--allow-net", "other.example.net")
	if r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	return b
}

// asSystem sends requests after a part of a shell script.
func (b box) asSystem(before string, requests ...string) harness.Result {
	b.t.Helper()
	script := fmt.Sprintf(`%s %s=%s exec /opt/program "$@"`, before, harness.ProgramVariable, askAsSystem)
	return b.Agentfense(append([]string{"exec", b.Name, "--", "sh", "-c", script, "sh"}, requests...)...)
}

const withoutVariables = `for v in $(env | grep /run/agentfense/ | cut -d= -f1); do unset $v; done;`

// trustsTheSandbox asks with the variables and without, and looks at the system's files.
func (b box) trustsTheSandbox(bundles string) {
	b.t.Helper()
	for _, before := range []string{"", withoutVariables} {
		r := b.asSystem(before, "GET https://example.com/show/a", "POST https://example.com/show/a", "GET https://example.com/show/b")
		want(b.t, r, "200 GET /show/a\n403\n403\n")
	}
	script := fmt.Sprintf(`for f in %s; do cmp $f /run/agentfense/ca-bundle.pem && echo same; (: > $f) 2>&1 || true; done`, bundles)
	expected := ""
	for path := range strings.FieldsSeq(bundles) {
		expected += fmt.Sprintf("same\nsh: can't create %s: Read-only file system\n", path)
	}
	want(b.t, b.Agentfense("exec", b.Name, "--", "sh", "-c", script), expected)
}

// trustsThisHost compares the certificates inside with those of this host.
func (b box) trustsThisHost() {
	b.t.Helper()
	var ours []byte
	for _, path := range isolate.Bundles {
		if content, err := os.ReadFile(path); err == nil {
			ours = content
			break
		}
	}
	r := b.Agentfense("exec", b.Name, "--", "cat", isolate.BundleFile)
	if len(ours) == 0 || !bytes.HasPrefix([]byte(r.Stdout), ours) || strings.Count(r.Stdout[len(ours):], "BEGIN CERTIFICATE") != 1 {
		b.t.Errorf("the certificates inside are not those of this host, of %d bytes, and the sandbox's: %d bytes", len(ours), len(r.Stdout))
	}
}

// opensAndNothingElse uses a secret on the program's own connection, another process, other hosts.
func (b box) opensAndNothingElse() {
	t := b.t
	want(t, b.asSystem("", "GET https://example.com/reflect/", "GET https://other.example.net/"),
		"200 right=true\nGet \"https://other.example.net/\": tls: failed to verify certificate: x509: certificate signed by unknown authority\n")
	for what, text := range map[string]string{
		"docker": b.docker("inspect", b.id()), "a command": b.Agentfense("exec", b.Name, "--", "env").Stdout,
	} {
		if strings.Contains(text, secretValue) || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s knows the secret: %s", what, text)
		}
	}
	b.change("grant", "--net", "www.example.com,intercept GET /show/a")
	want(t, b.asSystem("unset API_KEY;", "GET https://www.example.com/show/a", "GET https://www.example.com/show/b"), "200 GET /show/a\n403\n")
	old := egressOf(t, b.Sandbox)
	signal(t, old, syscall.SIGKILL)
	testenv.Eventually(t, "the process has ended", func() bool { return syscall.Kill(old, 0) != nil })
	want(t, b.asSystem("", "GET https://example.com/show/a", "GET https://example.com/show/b"), "200 GET /show/a\n403\n")
	b.change("revoke", "--net", "example.com,intercept")
	want(t, b.asSystem("", "GET https://example.com/show/a"), "no such name\n")
	b.Agentfense("stop", b.Name)
	if left := b.docker("ps", "--all", "--quiet"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
}

package network_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// Each program here fetches a package from the registry that it asks by itself, which its preset
// allows. The registry is the test's.

func TestPip(t *testing.T) {
	const python = "/usr/bin/python3"
	testenv.Command(t, python)
	pips := testenv.Files(t, "/usr/share/python-wheels/pip-*.whl")
	authority := internet(t, pypi)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(python+" "+pips[0]+`/pip install -q --disable-pip-version-check --no-cache-dir --root-user-action=ignore --target /tmp/packages greeting &&
PYTHONPATH=/tmp/packages `+python+` -c 'import greeting; print(greeting.text)'`,
			append(flags(authority, "@pypi"), "--env", "PIP_CERT=/opt/authority.pem", "--env", "PIP_CONFIG_FILE=/dev/null")...)
		want(t, r, "hello from a wheel\n")
		contains(t, "the summary", r.Stderr, "pypi.org 1 connection", "files.pythonhosted.org 1 connection")
	})
}

func pypi(t *testing.T, mux *http.ServeMux) {
	const file = "greeting-1.0-py3-none-any.whl"
	wheel := harness.Wheel(t, "greeting", "1.0", "text = 'hello from a wheel'\n")
	mux.HandleFunc("pypi.org/simple/greeting/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="https://files.pythonhosted.org/packages/%s">%[1]s</a>`, file)
	})
	mux.HandleFunc("files.pythonhosted.org/packages/"+file, func(w http.ResponseWriter, _ *http.Request) { w.Write(wheel) })
}

func TestNpm(t *testing.T) {
	testenv.Command(t, "npm", "node")
	authority := internet(t, npm)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`mkdir /tmp/app && cd /tmp/app && npm install --silent --no-audit --fetch-retries=0 --no-fund --no-update-notifier greeting && node_modules/.bin/greet`,
			append(flags(authority, "@npm"), "--env", "NODE_EXTRA_CA_CERTS=/opt/authority.pem", "--env", "HOME=/tmp", "--env", "npm_config_globalconfig=/dev/null")...)
		want(t, r, "hello from bin\n")
	})
}

func npm(t *testing.T, mux *http.ServeMux) {
	mux.Handle("registry.npmjs.org/", harness.NpmRegistry(t, func() string { return "https://registry.npmjs.org" }))
}

func TestGoModules(t *testing.T) {
	testenv.Command(t, "go")
	authority := internet(t, goproxy)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`mkdir /tmp/app && cd /tmp/app && export GOPATH=/tmp/go GOCACHE=/tmp/cache GOENV=off GOSUMDB=off GOTOOLCHAIN=local GOFLAGS=-modcacherw
go mod init -q app 2>/dev/null || go mod init app 2>/dev/null
go get example.org/greeting@latest 2>/dev/null && cat /tmp/go/pkg/mod/example.org/greeting@v1.0.0/greeting.go`,
			append(flags(authority, "@go"), "--env", "SSL_CERT_FILE=/opt/authority.pem")...)
		want(t, r, "package greeting\n")
	})
}

func goproxy(t *testing.T, mux *http.ServeMux) {
	const (
		module = "example.org/greeting"
		mod    = "module " + module + "\n\ngo 1.21\n"
		info   = `{"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}`
	)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range map[string]string{"go.mod": mod, "greeting.go": "package greeting\n"} {
		w, err := z.Create(module + "@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		"/@v/list": "v1.0.0\n", "/@latest": info, "/@v/v1.0.0.info": info, "/@v/v1.0.0.mod": mod, "/@v/v1.0.0.zip": b.String(),
	} {
		mux.HandleFunc("proxy.golang.org/"+module+path, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(content)) })
	}
}

func TestCargo(t *testing.T) {
	testenv.Command(t, "cargo", "rustc")
	version, err := exec.Command("cargo", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var minor int
	// Since 1.70 it asks index.crates.io by itself.
	if _, err := fmt.Sscanf(string(version), "cargo 1.%d", &minor); err == nil && minor < 70 || strings.HasPrefix(string(version), "cargo 0.") {
		t.Skipf("needs cargo 1.70: %s", version)
	}
	sysroot, err := exec.Command("rustc", "--print", "sysroot").Output()
	if err != nil {
		t.Fatal(err)
	}
	authority := internet(t, crates)
	rust := harness.OpenDir(t) // a user's toolchain is below its home
	if err := unix.Mount(strings.TrimSpace(string(sysroot)), rust, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(rust, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", rust, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil { // nothing of it can be removed
		t.Fatal(err)
	}
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`mkdir -p /tmp/app/src && cd /tmp/app && export PATH=/opt/rust/bin:$PATH CARGO_HOME=/tmp/cargo HOME=/tmp
echo 'fn main() {}' > src/main.rs
printf '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\ngreeting = "1"\n' > Cargo.toml
cargo fetch -q && cat /tmp/cargo/registry/src/*/greeting-1.0.0/src/lib.rs`,
			append(flags(authority, "@crates"), "--mount", rust+":/opt/rust", "--env", "CARGO_HTTP_CAINFO=/opt/authority.pem")...)
		want(t, r, "// hello from a crate\n")
	})
}

func crates(t *testing.T, mux *http.ServeMux) {
	crate := harness.Tarball(t,
		harness.File{Name: "greeting-1.0.0/Cargo.toml", Content: "[package]\nname = \"greeting\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"},
		harness.File{Name: "greeting-1.0.0/src/lib.rs", Content: "// hello from a crate\n"},
	)
	for path, content := range map[string]string{
		"index.crates.io/config.json":                           `{"dl": "https://static.crates.io/crates", "api": "https://crates.io"}`,
		"index.crates.io/gr/ee/greeting":                        fmt.Sprintf(`{"name":"greeting","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(crate)),
		"static.crates.io/crates/greeting/1.0.0/download":       string(crate),
		"static.crates.io/crates/greeting/greeting-1.0.0.crate": string(crate),
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(content)) })
	}
}

func TestApt(t *testing.T) {
	testenv.Command(t, "apt-get", "dpkg-deb")
	authority := internet(t, debian)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial /tmp/apt/etc && cd /tmp/apt
echo 'deb [trusted=yes] http://deb.debian.org/debian ./' > sources.list && touch status
apt="apt-get -qq -o Dir::State=/tmp/apt -o Dir::State::status=/tmp/apt/status -o Dir::Cache=/tmp/apt/cache -o Dir::Etc=/tmp/apt/etc
-o Dir::Etc::SourceList=/tmp/apt/sources.list -o APT::Sandbox::User= -o APT::Architecture=amd64"
$apt update && $apt download greeting && dpkg-deb --fsys-tarfile greeting_1.0_all.deb | tar xO ./usr/share/greeting`, flags(authority, "@debian")...)
		want(t, r, "hello from a deb\n")
	})
}

func debian(t *testing.T, mux *http.ServeMux) {
	dir := t.TempDir()
	const script = `mkdir -p tree/DEBIAN tree/usr/share && echo hello from a deb > tree/usr/share/greeting &&
printf 'Package: greeting\nVersion: 1.0\nArchitecture: all\nMaintainer: me <me@example.com>\nDescription: greeting\n' > tree/DEBIAN/control &&
dpkg-deb --root-owner-group -b tree greeting_1.0_all.deb &&
{ cat tree/DEBIAN/control; printf 'Filename: ./greeting_1.0_all.deb\nSize: %s\nSHA256: %s\n' $(stat -c %s greeting_1.0_all.deb) $(sha256sum < greeting_1.0_all.deb | cut -c-64); } > Packages &&
printf 'Date: %s\nSHA256:\n %s %s Packages\n' "$(date -Ru)" $(sha256sum < Packages | cut -c-64) $(stat -c %s Packages) > Release`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mux.Handle("deb.debian.org/debian/", http.StripPrefix("/debian", http.FileServer(http.Dir(dir))))
}

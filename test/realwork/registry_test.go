package realwork_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

func TestPipInstallsIntoAVenv(t *testing.T) {
	const python = "/usr/bin/python3"
	testenv.Command(t, python)
	index := harness.PackageIndex(t, "greeting", "1.0", "text = 'hello from a wheel'\n")
	s := harness.New(t, binary, nil)
	r := must(t, s, python+` -m venv venv
venv/bin/pip install -q --disable-pip-version-check --no-cache-dir --index-url `+index+` greeting
venv/bin/python -c 'import greeting; print(greeting.text)'`, "--net", "host")
	if want := "hello from a wheel\n"; r.Stdout != want {
		t.Errorf("stdout = %q, want %q", r.Stdout, want)
	}
}

func TestNpmInstall(t *testing.T) {
	testenv.Command(t, "npm", "node")
	tarball := makeNpmPackage(t)
	var server *httptest.Server
	mux := http.NewServeMux()
	mux.HandleFunc("/greeting", func(w http.ResponseWriter, _ *http.Request) {
		sum := sha512.Sum512(tarball)
		json.NewEncoder(w).Encode(map[string]any{
			"name": "greeting", "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{
				"name": "greeting", "version": "1.0.0", "bin": map[string]string{"greet": "bin.js"},
				"dist": map[string]string{
					"tarball":   server.URL + "/greeting-1.0.0.tgz",
					"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
				},
			}},
		})
	})
	mux.HandleFunc("/greeting-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { w.Write(tarball) })
	server = httptest.NewServer(mux)
	defer server.Close()
	s := harness.New(t, binary, map[string]string{"package.json": `{"name": "app", "version": "1.0.0", "private": true}` + "\n"})
	r := must(t, s, `
npm install --silent --no-audit --no-fund --no-update-notifier --registry=`+server.URL+` greeting
node -p 'require("greeting")'
node_modules/.bin/greet
`, "--net", "host")
	if want := "hello from npm\nhello from bin\n"; r.Stdout != want {
		t.Errorf("stdout = %q, want %q", r.Stdout, want)
	}
}

func makeNpmPackage(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	w := tar.NewWriter(gz)
	for _, f := range []struct {
		name, content string
		mode          int64
	}{
		{"package/package.json", `{"name": "greeting", "version": "1.0.0", "bin": {"greet": "bin.js"}}`, 0o644},
		{"package/index.js", "module.exports = 'hello from npm'\n", 0o644},
		{"package/bin.js", "#!/usr/bin/env node\nconsole.log('hello from bin')\n", 0o755},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(f.content))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

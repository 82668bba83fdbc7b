package realwork_test

import (
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
	var server *httptest.Server
	server = httptest.NewServer(harness.NpmRegistry(t, func() string { return server.URL }))
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

package realwork_test

import (
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// work is a project, what people run in it, and a secret that they forgot there.
type work struct {
	files  map[string]string
	script string
	flags  []string
	secret string // a path
}

// maxLearned is how many rules a learned policy may have to be readable.
const maxLearned = 25

// learned runs the script with --learn, then again under what was learned, where the secret cannot
// be read.
func learned(t *testing.T, w work) {
	t.Helper()
	const secret = "planted"
	w.files[w.secret] = secret + "\n"
	s := harness.New(t, binary, w.files)
	if strings.Contains(w.script, "npm ci") {
		registry := w.flags[len(w.flags)-1]
		w.flags = w.flags[:len(w.flags)-1]
		outside(t, s.Source, "npm", "install", "--package-lock-only", "--silent", "--no-audit", "--no-fund", "--registry="+registry)
	}
	file := filepath.Join(t.TempDir(), "learned.yaml")
	run := func(script string, flags ...string) harness.Result {
		return s.Agentfense(append(append([]string{"run", "--rm", "--dir", s.Source}, append(w.flags, flags...)...), "--", "sh", "-c", script)...)
	}
	if r := run("set -e\n"+w.script, "--preset", "development", "--learn", file); r.Code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "pattern:"); n > maxLearned || n == 0 {
		t.Errorf("%d rules, want 1 to %d:\n%s", n, maxLearned, text)
	}
	if !strings.Contains(string(text), `{path: "/`+w.secret+`", permission: none}`) {
		t.Errorf("the file does not expect that the secret stays hidden:\n%s", text)
	}
	if r := s.Agentfense("policy", "test", file); r.Code != 0 {
		t.Errorf("policy test: %s%s", r.Stdout, r.Stderr)
	}
	r := run("set -e\n"+w.script+"\nset +e; cat "+w.secret+"; find . -type f -exec grep -l "+secret+" {} +; true", "--policy", file)
	if r.Code != 0 {
		t.Errorf("the same run under what was learned: exit code %d\n%s\n%s\n%s", r.Code, r.Stdout, r.Stderr, text)
	}
	if strings.Contains(r.Stdout, w.secret) || strings.Contains(r.Stdout, secret) {
		t.Errorf("the secret can be read:\n%s\n%s", r.Stdout, text)
	}
}

// all adds the projects that build much.
var all = flag.Bool("learn.all", false, "learn from projects that take minutes, too")

func TestLearn(t *testing.T) {
	t.Run("npm", learnNpm)
	if *all {
		t.Run("go", learnGo)
		t.Run("python", learnPython)
	}
}

func learnNpm(t *testing.T) {
	testenv.Command(t, "npm", "node")
	var server *httptest.Server
	server = httptest.NewServer(harness.NpmRegistry(t, func() string { return server.URL }))
	defer server.Close()
	learned(t, work{
		files: map[string]string{
			"package.json": `{"name": "app", "version": "1.0.0", "private": true, "scripts": {"test": "node --test"}, "dependencies": {"greeting": "1.0.0"}}` + "\n",
			"src/a.js":     "module.exports = require('greeting')\n",
			"src/b.js":     "module.exports = require('./a')\n",
			"src/c.js":     "module.exports = require('./b')\n",
			"test/c.test.js": "const test = require('node:test'), assert = require('node:assert')\n" +
				"test('c', () => assert.match(require('../src/c'), /hello/))\n",
			"README.md": "# app\n",
		},
		script: "npm ci --silent --no-audit --no-fund --no-update-notifier --registry=" + server.URL + "\nnpm test --silent",
		flags:  []string{"--net", "host", server.URL},
		secret: "src/.env.local",
	})
}

func learnGo(t *testing.T) {
	testenv.Command(t, "go")
	files := map[string]string{"go.mod": "module example.com/hello\n\ngo 1.21\n", "main.go": "package main\n\nfunc main() {}\n"}
	for _, name := range []string{"a", "b", "c"} {
		dir := "internal/" + name + "/"
		files[dir+name+".go"] = "package " + name + "\n\nfunc F() int { return 1 }\n"
		files[dir+name+"_test.go"] = "package " + name + "\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n" +
			"func TestF(t *testing.T) {\n\tif _, err := os.ReadFile(\"testdata/in.txt\"); err != nil || F() != 1 {\n\t\tt.Fatal(err)\n\t}\n}\n"
		files[dir+"testdata/in.txt"] = "in\n"
	}
	learned(t, work{
		files:  files,
		script: "export GOCACHE=$PWD/.cache GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0 GOFLAGS=-p=1\ngo build ./...\ngo test -vet=off ./internal/...",
		flags:  []string{"--toolchains"},
		secret: "internal/a/testdata/server.key",
	})
}

func learnPython(t *testing.T) {
	const python = "/usr/bin/python3"
	testenv.Command(t, python)
	files := map[string]string{"README.md": "# shop\n", "tests/__init__.py": "", "shop/__init__.py": ""}
	for _, name := range []string{"cart", "price", "tax"} {
		files["shop/"+name+".py"] = "X = 1\n"
		files["tests/test_"+name+".py"] = "import unittest, greeting\nfrom shop import " + name + "\n\n" +
			"class T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(" + name + ".X, 1)\n"
	}
	learned(t, work{
		files: files,
		script: python + " -m venv venv\nvenv/bin/pip install -q --disable-pip-version-check --no-cache-dir --index-url " +
			harness.PackageIndex(t, "greeting", "1.0", "text = 'hello'\n") + " greeting\nvenv/bin/python -m unittest -q",
		flags:  []string{"--net", "host"},
		secret: "shop/credentials.json",
	})
}

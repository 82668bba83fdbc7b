package docs_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// What the sessions install comes from here, as it would from the registries:
// the package and the module of this very repository, and for what somebody else
// wrote a package that a server on this host has.

// supply is what makes an installer find what a session asks it for.
var supply = []struct {
	command string
	env     func(t *testing.T) []string
}{
	{"pip install -q 'agentfense>=", wheels},
	{"go get ", proxy},
	{"go mod edit -replace ", unpublished}, // behind "go get ", of which it takes the proxy
	{namedIndex, index},
}

// namedIndex gives a sandbox the hosts of pip's index. Those of a test have an index on this host,
// which no named host leads to, so they get the host's network.
const namedIndex = "--allow-net @pypi"

func (w *world) supply(steps []step) {
	for _, s := range supply {
		if slices.ContainsFunc(steps, func(step step) bool { return strings.Contains(step.command, s.command) }) {
			w.env = append(w.env, s.env(w.t)...)
		}
	}
	for i, step := range steps {
		steps[i].command = strings.ReplaceAll(step.command, namedIndex, "--net host --env PIP_INDEX_URL")
	}
}

// wheels are those of the Python package and of what it needs, and nothing else.
func wheels(t *testing.T) []string {
	testenv.Command(t, "/usr/bin/python3")
	dir := t.TempDir()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = absolute
		var complaints bytes.Buffer
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", name, err, out, complaints.String())
		}
		return strings.TrimSpace(string(out))
	}
	run("scripts/wheel", binary, dir)
	environment := run("scripts/python", "test")
	run(filepath.Join(absolute, environment, "bin/pip"), "download", "-q", "--disable-pip-version-check",
		"--require-hashes", "--only-binary=:all:", "-r", "tools/python/run.txt", "-d", dir)
	return []string{"PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + dir, "PIP_DISABLE_PIP_VERSION_CHECK=1"}
}

// proxy is a proxy of Go modules that has this one, and behind it what was
// downloaded to build it. The modules are unpacked anew, where the test ends.
func proxy(t *testing.T) []string {
	const module, version = "github.com/agentfense/agentfense", "v0.0.1"
	served, cache := t.TempDir(), t.TempDir()
	dir := filepath.Join(served, module, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".mod": mod, version + ".zip": moduleZip(t, module+"@"+version+"/"),
		version + ".info": fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-02T03:04:05Z"}`, version),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, downloads, _ := strings.Cut(caches(t)[1], "=")
	return []string{
		"GOPROXY=file://" + served + ",file://" + filepath.Join(downloads, "cache/download"), "GOSUMDB=off",
		"GOMODCACHE=" + cache, "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0",
	}
}

// unpublished is a proxy of Go modules that does not have this one.
func unpublished(t *testing.T) []string {
	_, downloads, _ := strings.Cut(caches(t)[1], "=")
	return []string{"GOPROXY=file://" + filepath.Join(downloads, "cache/download")}
}

// moduleZip is this module as a proxy has it.
func moduleZip(t *testing.T, prefix string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"bin", "dist", "sdk", "docs", "tools", "testdata"}, entry.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w, err := z.Create(prefix + strings.TrimPrefix(path, root+"/"))
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// index is a package index on this host with one package of somebody else, six.
func index(t *testing.T) []string {
	url := harness.PackageIndex(t, "six", "1.17.0", "__version__ = '1.17.0'\n")
	return []string{"PIP_INDEX_URL=" + url, "PIP_DISABLE_PIP_VERSION_CHECK=1"}
}

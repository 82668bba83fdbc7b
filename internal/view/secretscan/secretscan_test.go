package secretscan_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/secretscan"
)

// The test assembles its secrets, so that no scanner reports this file.
var (
	body  = strings.Repeat("b3BlbnNzaC1rZXktdjEAAAAABG5vbmU", 3)
	key   = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\n" + body + "\n-----END\n"
	aws   = "AK" + "IA2QWERTYUIOPASDF7"
	hub   = "gh" + "p_" + "a8Kd93JfLs02mZxQwE71vBnTyUiOp45RtGh6"
	value = "q7Rk2LmX9vTz4WpB8nYc"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func scan(t *testing.T, dir string) (secretscan.Result, []string) {
	t.Helper()
	r, err := secretscan.Scan(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s:%d %s", f.Path, f.Line, f.Kind))
		for _, secret := range []string{body, aws, hub, value} {
			if strings.Contains(f.Reason, secret) {
				t.Errorf("%s tells the secret: %s", f.Path, f.Reason)
			}
		}
	}
	return r, got
}

func TestScanFindsSecretsByNameAndContent(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		".env": "X=1\n", "web/.npmrc": "x", "secrets/a": "x", ".env.example": "KEY=\n",
		"deploy.txt":      "# deploy\n\n" + key,
		"notes.md":        "see " + aws + "\n",
		"src/app.py":      "import os\nGITHUB = '" + hub + "'\n",
		"src/config.py":   "DB = 'x'\nDB_PASSWORD = \"" + value + "\"\n",
		"config/a.yaml":   "api_key: " + value + "\n",
		"tests/a_test.py": "T = '" + hub + "'\n",
		"settings.json":   `{"client_secret": "` + value + `"}`,
	})
	_, got := scan(t, dir)
	want := []string{
		"/.env:0 name", "/config/a.yaml:1 entropy", "/deploy.txt:3 private-key", "/notes.md:1 token", "/secrets:0 name",
		"/settings.json:1 entropy", "/src/app.py:2 token", "/src/config.py:2 entropy", "/tests/a_test.py:1 token", "/web/.npmrc:0 name",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Scan (-want +got):\n%s", diff)
	}
}

func TestScanPassesOverWhatIsNone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"package-lock.json": `{"integrity": "sha512-` + body + `", "token": "` + value + `"}`,
		"Cargo.lock":        "token = \"" + value + "\"\n",
		"a.min.js":          "var token=\"" + value + "\";",
		"bundle.js":         strings.Repeat("x", 3000) + "token=\"" + value + "\"",
		"testdata/key.txt":  key,
		"a_test.go":         "const token = \"" + value + "\"\n",
		"parse.go":          "if strings.HasPrefix(s, \"-----BEGIN RSA PRIVATE" + " KEY-----\") {\n",
		"doc.md":            "api_key: your_api_key_goes_here_123\nAKIAIOSFODNN7" + "EXAMPLE\n",
		"env.js":            "const token = process.env.GITHUB_TOKEN_2024_V1\nconst password = getPassword(\"production-2024\")\n",
		"path.py":           "SECRET_FILE = \"/run/secrets/db_password_2024\"\n",
		"url.py":            "TOKEN_URL = \"https://auth.example.org/oauth2/token99\"\n",
		"binary":            "\x00" + key,
		".git/config":       "token = " + value + "\n",
		"node_modules/a/b":  key,
	})
	if _, got := scan(t, dir); len(got) > 0 {
		t.Errorf("Scan = %v, want nothing", got)
	}
}

func TestScanStaysBeneathTheDirectory(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside, map[string]string{"key.txt": key})
	write(t, dir, map[string]string{"a": "a", "big": strings.Repeat("x\n", secretscan.MaxFileBytes) + key})
	for link, target := range map[string]string{"link": filepath.Join(outside, "key.txt"), "dir": outside, "loop": "."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, got := scan(t, dir)
	if len(got) > 0 || r.Files != 2 {
		t.Errorf("Scan = %v of %d files, want nothing of 2", got, r.Files)
	}
	if _, err := secretscan.Scan(context.Background(), filepath.Join(dir, "none")); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Scan of nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := secretscan.Scan(ctx, dir); !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("Scan canceled: %v", err)
	}
}

func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	text := strings.Repeat("def f(token, password):\n    return token # see https://example.org/\n", 80)
	for i := range 10_000 {
		sub := filepath.Join(dir, fmt.Sprintf("d%d", i%100))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%d.py", i)), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		began := time.Now()
		if _, err := secretscan.Scan(context.Background(), dir); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/10k-files")
	}
}

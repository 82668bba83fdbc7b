package textdiff_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
)

func TestQuoteName(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"a plain name stays", "src/a b.go", "src/a b.go"},
		{"printable letters stay", "ä/日本", "ä/日本"},
		{"a newline cannot forge a header", "a\n+++ b", `"a\n+++ b"`},
		{"a terminal escape is octal", "\x1b[31m", `"\033[31m"`},
		{"a quote and a backslash are escaped", `a"\`, `"a\"\\"`},
		{"a bidi override shows as bytes", "\u202egpj", `"\342\200\256gpj"`},
		{"broken UTF-8 is octal", "\xff", `"\377"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := textdiff.QuoteName(tt.in); got != tt.want {
				t.Errorf("QuoteName(%q) = %s, want %s", tt.in, got, tt.want)
			}
		})
	}
}

func TestGitReadsQuotedNames(t *testing.T) {
	testenv.Command(t, "git")
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.ByteRange(1, 255), 1, 40).Draw(t, "name")
		name := strings.ReplaceAll(string(raw), "/", "_")
		if name == "." || name == ".." || strings.EqualFold(name, ".git") {
			return
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("a\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(file)
		oldName, newName := textdiff.QuoteName("a/"+name), textdiff.QuoteName("b/"+name)
		patch := "diff --git " + oldName + " " + newName + "\n" +
			textdiff.Unified(oldName+"\t", newName+"\t", []byte("a\n"), []byte("b\n"))
		if err := gitApply(dir, patch); err != nil {
			t.Fatalf("%v\n%s", err, patch)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != "b\n" {
			t.Fatalf("after git apply: %q, %v", got, err)
		}
	})
}

func TestEscape(t *testing.T) {
	tests := []struct {
		name, in, want string
		changed        bool
	}{
		{"code stays", "\tif a \\ b {\n", "\tif a \\ b {\n", false},
		{"letters, spaces of all widths and emoji stay", "ä\u00a0日\u3000🙂\n", "ä\u00a0日\u3000🙂\n", false},
		{"a terminal escape shows", "\x1b]0;x\a\n", `\x1b]0;x\x07` + "\n", true},
		{"a C1 control shows", "\u009b1m", `\xc2\x9b1m`, true},
		{"an overprint shows", "evil\rgood\n", `evil\x0dgood` + "\n", true},
		{"a bidi override shows", "a\u202eb", `a\u{202e}b`, true},
		{"a zero-width space shows", "a\u200bb", `a\u{200b}b`, true},
		{"broken UTF-8 shows", "\x9b1m", `\x9b1m`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, changed := textdiff.Escape(tt.in)
			if got != tt.want || changed != tt.changed {
				t.Errorf("Escape(%q) = %q, %v, want %q, %v", tt.in, got, changed, tt.want, tt.changed)
			}
		})
	}
}

func TestEscapeHunksKeepsDOSFilesPatches(t *testing.T) {
	hunks := textdiff.Hunks([]byte("a\r\nb\r\n"), []byte("a\r\nc\r\n"))
	if shown, changed := textdiff.EscapeHunks(hunks); changed || shown[0].String() != hunks[0].String() {
		t.Errorf("a DOS file's diff became %q", shown[0].String())
	}
	hunks = textdiff.Hunks([]byte("a\r\n"), []byte("a\n"))
	shown, changed := textdiff.EscapeHunks(hunks)
	if want := "@@ -1 +1 @@\n-a\\x0d\n+a\n"; !changed || shown[0].String() != want {
		t.Errorf("a changed line ending shows as %q, want %q", shown[0].String(), want)
	}
}

func FuzzEscapeIsInert(f *testing.F) {
	f.Add("\x1b[2J\r\n")
	f.Add("\u202e\xff\x00")
	f.Fuzz(func(t *testing.T, line string) {
		got, changed := textdiff.Escape(line)
		if changed == (got == line) {
			t.Fatalf("Escape(%q) = %q, %v", line, got, changed)
		}
		if body := strings.TrimSuffix(got, "\n"); strings.ContainsAny(body, "\x1b\r\n\x00\a\b\u202e\u2066") {
			t.Fatalf("Escape(%q) = %q", line, got)
		}
	})
}

package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A policy that would be slow to match is refused before the start. A policy that only
// looks slow decides each path quickly and correctly. A failure here is a test that never
// ends.
func TestPolicyBombs(t *testing.T) {
	long := strings.Repeat("a", 250)
	deepest := strings.Repeat(long+"/", 12) + "end"
	bombs := map[string]string{
		"stars":    rule("**/"+strings.Repeat("*a", 60)+"*b", "none"),
		"question": rule("**/"+strings.Repeat("?*", 60)+"z", "none"),
		"classes":  rule("**/"+strings.Repeat("[!b]*", 40)+"z", "none"),
		"globstar": rule(strings.Repeat("**/a*/", 40)+"**", "none"),
		"doubles":  rule(strings.Repeat("**/", 200)+"*a*/**/nothing", "none"),
		"braces":   rule("**/"+strings.Repeat("{a,aa}", 40)+"z", "none"),
		"nested":   rule(strings.Repeat("{a,", 500)+"b"+strings.Repeat("}", 500), "none"),
		"100,000":  many(100_000, "/dir%d/*.key"),
		"60,000":   many(60_000, "/dir%d/*.key"),
		"anywhere": many(2_000, "**/*x%dy*"),
		"unclosed": rule(strings.Repeat("[", 10_000), "none"),
		"escapes":  rule(strings.Repeat(`\\`, 5_000), "none"),
	}
	refused := map[string]bool{
		"braces": true, "globstar": true, "100,000": true, "anywhere": true, "unclosed": true, "escapes": true,
	}
	s := harness.New(t, binary, map[string]string{deepest: "seen", "dir7/x.key": "secret", "dir7/x": "seen"})
	for name, rules := range bombs {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "policy.yaml")
			text := "version: 1\nrules:\n  - {pattern: \"**\", permission: write}\n" + rules
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			box := *s
			box.Name = "bomb-" + strings.ReplaceAll(name, ",", "")
			r := box.Run("cat "+deepest+" && ls dir7", "--policy", file)
			want := "seenx\nx.key\n"
			if name == "60,000" {
				want = "seenx\n"
			}
			switch {
			case r.Code == 125 && r.Stdout == "" && strings.Contains(r.Stderr, "pattern"):
				if !refused[name] {
					t.Errorf("refused: %s", head(r.Stderr))
				}
				if box.Agentfense("inspect", box.Name).Code == 0 {
					t.Error("a sandbox was made though its policy was refused")
				}
			case refused[name]:
				t.Errorf("not refused: exit code %d, %s", r.Code, head(r.Stderr))
			case r.Code != 0 || r.Stdout != want:
				t.Errorf("exit code %d, stdout %q, want %q\n%s", r.Code, r.Stdout, want, head(r.Stderr))
			}
		})
	}
}

func rule(pattern, permission string) string {
	return fmt.Sprintf("  - {pattern: '%s', permission: %s}\n", pattern, permission)
}

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(rule(fmt.Sprintf(format, i), "none"))
	}
	return b.String()
}

func head(s string) string { return s[:min(len(s), 300)] }

package attack_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A rule matches whole elements of a path: /src does not match /src-secret, and no spelling
// of a path bypasses a rule.
func TestRulesCoverWholeElements(t *testing.T) {
	eachHiding(t, rulesCoverWholeElements)
}

func rulesCoverWholeElements(t *testing.T, h hiding) {
	s := harness.New(t, binary, map[string]string{
		"src/a": "a", "src-secret/a": "secret", "src.bak": "secret", "srcs/a": "secret", "src ": "secret",
		"sr/c": "secret", "src%2fa": "secret", "deny/a": "secret", "deny-not/a": "seen", "denyx": "seen",
	})
	only := append(h.flags("deny/"), "--preset", "view-only", "--read", "/src", "--name", "prefix")
	prints(t, s, `for f in src/a src-secret/a src.bak srcs/a "src " sr/c src%2fa; do cat "$f" 2>&1; echo; done
ls deny deny/a 2>&1 | grep -c 'No such file'
ls -d deny-not/a denyx`,
		`a
cat: src-secret/a: Permission denied

cat: src.bak: Permission denied

cat: srcs/a: Permission denied

cat: 'src ': Permission denied

cat: sr/c: Permission denied

cat: src%2fa: Permission denied

2
deny-not/a
denyx
`, only...)
	// However a path is written inside, the kernel takes it apart.
	prints(t, s, `for f in ./src/../src-secret/a src//../src-secret/a src/./../src-secret/a $PWD/src/../src-secret/a src/../../$(basename $PWD)/src-secret/a; do
	cat $f 2>&1 | grep -c denied; done
for f in src/../deny/a deny/../deny/a src//../deny//a deny/../src/a; do cat $f 2>&1 | grep -c 'No such file'; done`,
		strings.Repeat("1\n", 9), only...)
	// The verbs take the same paths: cleaned, never decoded, never above the
	// workspace.
	for path, want := range map[string]string{
		"src/a": "a", "./src//a": "a", "/src/./a": "a",
	} {
		if got := agentfense(t, s, "files", "cat", "prefix", path); got != want {
			t.Errorf("files cat %s: %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{
		"../" + strings.Repeat("../", 40) + "etc/passwd", "src/../src-secret/a", "src/../../etc/passwd", "src/../deny/a",
		"%2e%2e/deny/a", "src/%2e%2e/src-secret/a", "src%2f..%2fdeny/a", "deny/a", "deny/", "src-secret/a", "src /a", "src/a ", "SRC/a",
	} {
		if r := s.Agentfense("files", "cat", "prefix", path); r.Code == 0 || strings.Contains(r.Stdout, "secret") || strings.Contains(r.Stdout, "root:") {
			t.Errorf("files cat %s: exit code %d, stdout %q", path, r.Code, r.Stdout)
		}
	}
}

// Applying or discarding a path does not affect paths with the same prefix.
func TestVerbsCoverWholeElements(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"src/a": "old", "src-secret/a": "old", "src.bak": "old"})
	prints(t, s, "for f in src/a src-secret/a src.bak; do printf new > $f; done", "", "--preset", "full-access")
	agentfense(t, s, "apply", s.Name, "src")
	for path, want := range map[string]string{"src/a": "new", "src-secret/a": "old", "src.bak": "old"} {
		if got := s.Read(path); got != want {
			t.Errorf("after apply of src, %s holds %q, want %q", path, got, want)
		}
	}
	prints(t, s, "printf again > src/a", "")
	agentfense(t, s, "discard", s.Name, "src")
	if got, want := agentfense(t, s, "diff", s.Name, "--name-status"), "M\tsrc-secret/a\nM\tsrc.bak\n"; got != want {
		t.Errorf("diff after discard of src: %q, want %q", got, want)
	}
	for _, path := range []string{"../src-secret", "src/../src-secret", "%2e%2e/src.bak", "..", "src/../.."} {
		for _, verb := range []string{"apply", "discard"} {
			r := s.Agentfense(verb, s.Name, path)
			if r.Code == 0 && r.Stdout != "" {
				t.Errorf("%s %s: %q", verb, path, r.Stdout)
			}
		}
	}
	if got := s.Read("src-secret/a"); got != "old" {
		t.Errorf("src-secret/a holds %q", got)
	}
}

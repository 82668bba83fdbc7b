package network_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A policy that was learned allows the hosts that were reached, and not what the rules would have
// allowed besides. What was refused is a comment.
func TestHostsAreLearned(t *testing.T) {
	authority := internet(t)
	s := harness.New(t, binary, nil)
	file := filepath.Join(t.TempDir(), "learned.yaml")
	const script = `
for u in https://www.example.com http://example.com; do curl -sS $u/; done
for h in api.example.com other.example.net; do curl -sS https://$h/ 2>/dev/null || echo refused; done
`
	first := strings.Replace(script, "api.example.com ", "", 1)
	r := s.Run(first, append(flags(authority, "*.example.com", "example.com:80"), "--learn", file)...)
	want(t, r, "this is www.example.com\nthis is example.com\nrefused\n")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "the policy", string(text), "network:\n  allow:\n", `- "example.com:80"`, `- "www.example.com" # 1 connection`+"\n", "host other.example.net (not in the allowlist), once")
	for line := range strings.SplitSeq(string(text), "\n") {
		if allows := strings.HasPrefix(strings.TrimSpace(line), "- "); allows && (strings.Contains(line, "*.example.com") || strings.Contains(line, "other")) {
			t.Errorf("the policy allows more than was used: %s", line)
		}
	}
	if r := s.Agentfense("rm", "--force", s.Name); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	r = s.Run(script, append(flags(authority), "--policy", file)...)
	want(t, r, "this is www.example.com\nthis is example.com\nrefused\nrefused\n")
}

package control_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// A port of localhost that a rule names is not that of a server of agentfense: not of another
// user's or another state directory's, nor of one that has started later.
func TestNoServerIsReachedByAPortOfLocalhost(t *testing.T) {
	for name, who := range map[string][]harness.Option{"root": nil, "ordinary user": {harness.Ordinary}} {
		t.Run(name, func(t *testing.T) {
			box := harness.New(t, binary, map[string]string{"a": "a\n"}, who...)
			if r := box.Agentfense("run", "--detach", "--allow-net", "example.com", "--name", box.Name, "--", "sleep", "600"); r.Code != 0 {
				t.Fatal(r.Stderr)
			}
			t.Cleanup(func() {
				if r := box.Agentfense("rm", "--force", box.Name); r.Code != 0 {
					t.Error(r.Stderr)
				}
			})
			for _, args := range [][]string{{"--no-auth"}, nil} {
				other := harness.New(t, binary, nil)
				s := serve(t, other, args...)
				for _, addr := range []string{s.URL, s.Addr} {
					port := addr[strings.LastIndexByte(addr, ':')+1:]
					if r := box.Agentfense("policy", "grant", box.Name, "--net", "localhost:"+port); r.Code != 0 {
						t.Fatal(r.Stderr)
					}
					r := box.Agentfense("exec", box.Name, "--", "bash", "-c", knock(addr))
					if r.Stdout != "" {
						t.Fatalf("serve %q at %s answers %q", args, addr, r.Stdout)
					}
					testenv.Eventually(t, "the refusal is in the audit log", func() bool {
						return strings.Contains(box.Agentfense("audit", box.Name).Stdout, "localhost port "+port+": a server of agentfense listens at this port of localhost")
					})
				}
				s.end()
			}
		})
	}
}

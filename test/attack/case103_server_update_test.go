package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// A client with all scopes changes its stopped sandbox, in steps and at once. It gets no port,
// secret, limit or host by it that the configuration does not allow for a new sandbox, and a
// refusal leaves nothing behind.
func TestNoUpdateWidensWhatTheOperatorAllows(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	config := filepath.Join(t.TempDir(), "server.yaml")
	text := "network: {allow: [example.com], limits: ['out=1M,connections=5']}\n" +
		"secrets: [{name: MINE, source: 'cmd:echo the-value', hosts: [api.example.com]}, {name: OTHERS, source: 'cmd:echo the-value', hosts: [api.example.com], owners: [nobody-here]}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServed(t)
	s.flags = []string{"--config", config}
	s.serve()
	agent := s.token("read,exec,manage,apply")
	s.must(agent, "create", "box", "--codebase", s.codebase, "--preset", "full-access", "--allow-net", "example.com")
	change := func(flags ...string) (string, error) {
		return s.try(agent, append(append([]string{"run", "--name", "box"}, flags...), "--", "true")...)
	}
	for _, tt := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--publish", "3000"}, "publishes no ports"},
		{[]string{"--secret", "OTHERS"}, "no secret"},
		{[]string{"--secret", "MINE", "--publish", "3000"}, "publishes no ports"},
		{[]string{"--pids", "7", "--secret", "OTHERS"}, "no secret"},
		{[]string{"--disk", "1G", "--scratch", "nm"}, "exclude each other"},
		{[]string{"--user", "0"}, "cannot be changed"},
		{[]string{"--mount", "/etc:/mnt/etc"}, "cannot be changed"},
	} {
		if out, err := change(tt.flags...); err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%q: %v, want %q\n%s", tt.flags, err, tt.want, out)
		}
	}
	out := s.must(agent, "inspect", "box")
	for _, never := range []string{"published:", "OTHERS", "MINE", "pids.max", "disk:", "scratch:"} {
		if strings.Contains(out, never) {
			t.Errorf("a refused change left %q:\n%s", never, out)
		}
	}
	if out, err := s.try(agent, "policy", "grant", "box", "--net", "other.example.org"); err == nil || !strings.Contains(out, "not among the hosts") {
		t.Errorf("a host: %v\n%s", err, out)
	}
	for _, limits := range []string{"out=100M", "connections=100,out=1G"} {
		if out, err := change("--net-limit", limits); err != nil {
			t.Fatalf("%s: %v\n%s", limits, err, out)
		}
		if out := s.must(agent, "inspect", "box"); !strings.Contains(out, "connections=5,out=1M") {
			t.Errorf("with %s:\n%s", limits, out)
		}
	}
	if out, err := change("--net-limit", "out=1K"); err != nil || !strings.Contains(s.must(agent, "inspect", "box"), "connections=5,out=1K") {
		t.Errorf("a lower limit: %v\n%s", err, out)
	}
}

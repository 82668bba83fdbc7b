package harness

import (
	"encoding/json"
	"strings"
)

// Denial is a permission_denied record of the audit log.
type Denial struct {
	Event      string `json:"event"`
	Path       string `json:"path"` // escaped
	Operation  string `json:"operation"`
	Permission string `json:"permission"`
	Rule       string `json:"rule"`
	Count      int    `json:"count"`
}

// Denials returns what the audit log says was refused. It stops the sandbox
// first, so that everything is written.
func (s *Sandbox) Denials() []Denial {
	s.t.Helper()
	s.Agentfense("stop", s.Name)
	r := s.Agentfense("audit", s.Name, "--json")
	if r.Code != 0 {
		s.t.Fatalf("audit: %s", r.Stderr)
	}
	var denials []Denial
	for line := range strings.Lines(r.Stdout) {
		var d Denial
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			s.t.Fatalf("audit line %q: %v", line, err)
		}
		if d.Event == "permission_denied" {
			denials = append(denials, d)
		}
	}
	return denials
}

// Denied returns how many operations on path were refused.
func (s *Sandbox) Denied(path string) int {
	s.t.Helper()
	n := 0
	for _, d := range s.Denials() {
		if d.Path == path {
			n += d.Count
		}
	}
	return n
}

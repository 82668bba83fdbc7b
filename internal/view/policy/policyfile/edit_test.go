package policyfile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

func TestEditAddsToListsOnly(t *testing.T) {
	item := func(text string) func(string) string {
		return func(indent string) string { return indent + "- " + text + "\n" }
	}
	tests := []struct{ name, text, want, wrong string }{
		{
			name: "lists with comments and other indents",
			text: "# a\nversion: 1\nrules: # b\n\n    # c\n    - {pattern: x, permission: read} # d\nnetwork:\n  allow:\n  - a.example\n",
			want: "# a\nversion: 1\nrules: # b\n    - R\n\n    # c\n    - {pattern: x, permission: read} # d\nnetwork:\n  allow:\n  - H\n  - a.example\n",
		},
		{name: "missing keys, and no end of line", text: "version: 1\npreset: nothing", want: "version: 1\npreset: nothing\nrules:\n  - R\nnetwork:\n  allow:\n    - H\n"},
		{
			name: "a network without allow", text: "version: 1\nrules:\n- {pattern: x, permission: read}\nnetwork:\n  limits:\n    out: 1M\n",
			want: "version: 1\nrules:\n- R\n- {pattern: x, permission: read}\nnetwork:\n  allow:\n    - H\n  limits:\n    out: 1M\n",
		},
		{name: "brackets", text: "version: 1\nrules: []\n", wrong: "line 2: nothing can be added to rules"},
		{name: "hosts in brackets", text: "version: 1\nnetwork:\n  allow: [a.example]\n", wrong: "line 3: nothing can be added to network.allow"},
		{name: "no mapping", text: "- a\n", wrong: "no mapping"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := policyfile.Edit([]byte(tt.text))
			var got []byte
			if err == nil {
				e.Add(item("R"), "rules")
				e.Add(item("H"), "network", "allow")
				got, err = e.Result()
			}
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, string(got)); err != nil || diff != "" {
				t.Errorf("%v, text (-want +got):\n%s", err, diff)
			}
		})
	}
}

package present_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

func TestOnlyTheWordAllows(t *testing.T) {
	const word = "kumar"
	for line, want := range map[string]api.Answer{
		"kumar\n":           {Allow: true, Scope: api.ScopeOnce},
		"  kumar \r\n":      {Allow: true, Scope: api.ScopeOnce},
		"kumar sandbox\n":   {Allow: true, Scope: api.ScopeSandbox},
		"kumar  sandbox \n": {Allow: true, Scope: api.ScopeSandbox},
		"y\n":               {Scope: api.ScopeOnce},
		"\n":                {Scope: api.ScopeOnce},
		"sandbox\n":         {Scope: api.ScopeOnce},
		"KUMAR\n":           {Scope: api.ScopeOnce},
		"kumarkumar\n":      {Scope: api.ScopeOnce},
		"kumar policy\n":    {Scope: api.ScopeOnce},
		"kumar project\n":   {Allow: true, Scope: api.ScopeProject},
		"project\n":         {Scope: api.ScopeOnce},
		"\x1b[24;80Rkumar":  {Scope: api.ScopeOnce}, // what a terminal answers, in front of it
	} {
		if got, allows := present.AllowingAnswer(line, word, present.Choices(api.Ask{}, true)); got != want || allows != want.Allow {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
	for line, choices := range map[string][]present.Choice{
		"kumar project": present.Choices(api.Ask{}, false), "kumar sandbox": present.Choices(api.Ask{Mount: "data"}, true),
	} {
		if got, allows := present.AllowingAnswer(line, word, choices); allows || got.Allow {
			t.Errorf("%s, where that is no choice: %+v", line, got)
		}
	}
	seen := map[string]bool{}
	for range 100 {
		seen[present.AskWord()] = true
	}
	if len(seen) < 95 {
		t.Errorf("%d words of 100 differ", len(seen))
	}
}

package present

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// AskLine says what is asked. Names are quoted and escaped.
func AskLine(a api.Ask) string {
	reason := ""
	if a.Requested {
		reason = "requested by the agent, which says " + vpath.Quote(vpath.DecodeText(a.Reason))
	}
	if a.Host != "" {
		return strings.TrimSuffix("connect to "+vpath.Quote(a.Host)+": "+reason, ": ")
	}
	program := vpath.Quote(vpath.DecodeText(a.Program))
	rule := "no rule"
	if a.Rule != "" {
		rule = vpath.Quote(vpath.DecodeText(a.Rule))
	}
	if a.Requested {
		return fmt.Sprintf("%s %s: %s (now: %s, by %s)", a.Need, vpath.Quote("/"+vpath.DecodeText(a.Path)), reason, a.Permission, rule)
	}
	return fmt.Sprintf("%s %s: %s by the program %s (now: %s, by %s)", a.Need, vpath.Quote("/"+vpath.DecodeText(a.Path)), a.Operation, program, a.Permission, rule)
}

// AskTitle says who waits.
func AskTitle(name string, a api.Ask) string {
	if a.Requested {
		return "the agent that uses the sandbox " + vpath.Escape(name) + " waits for your answer"
	}
	return "a program in the sandbox " + vpath.Escape(name) + " waits for your answer"
}

// OnceText says what an answer for once allows.
func OnceText(a api.Ask) string {
	if a.Requested {
		return "Allow it for 10 minutes"
	}
	return "Allow it once"
}

// AskWord returns another word with each call, of five letters, that can be read and typed. An
// answer that allows repeats it, so that nothing that was typed before it was shown can allow.
func AskWord() string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	word := make([]byte, 5)
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	for i := range word {
		letters := consonants
		if i%2 == 1 {
			letters = vowels
		}
		word[i] = letters[int(b[i])%len(letters)]
	}
	return string(word)
}

// AllowingAnswer reads what was typed. Only the word, alone or with a scope, allows. isOfProject
// says that an answer may be for the project.
func AllowingAnswer(line, word string, isOfProject bool) (a api.Answer, allows bool) {
	switch text := strings.Join(strings.Fields(line), " "); {
	case text == word:
		a = api.Answer{Allow: true, Scope: api.ScopeOnce}
	case text == word+" sandbox":
		a = api.Answer{Allow: true, Scope: api.ScopeSandbox}
	case text == word+" project" && isOfProject:
		a = api.Answer{Allow: true, Scope: api.ScopeProject}
	default:
		a.Scope = api.ScopeOnce
	}
	return a, a.Allow
}

// AnswerText says what an answer did.
func AnswerText(a api.Answer) string {
	switch {
	case !a.Allow:
		return "refused"
	case a.Scope == api.ScopeSandbox:
		return "allowed in this sandbox; agentfense policy revoke takes it back"
	case a.Scope == api.ScopeProject:
		return "allowed in this sandbox and in later ones of the project"
	}
	return "allowed once"
}

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
	path := vpath.Quote("/" + vpath.DecodeText(a.Path))
	if a.Mount != "" {
		path += " in the mount " + vpath.Escape(a.Mount)
	}
	program := vpath.Quote(vpath.DecodeText(a.Program))
	rule := "no rule"
	if a.Rule != "" {
		rule = vpath.Quote(vpath.DecodeText(a.Rule))
	}
	if a.Requested {
		return fmt.Sprintf("%s %s: %s (now: %s, by %s)", a.Need, path, reason, a.Permission, rule)
	}
	return fmt.Sprintf("%s %s: %s by the program %s (now: %s, by %s)", a.Need, path, a.Operation, program, a.Permission, rule)
}

// AskTitle says who waits.
func AskTitle(name string, a api.Ask) string {
	if a.Requested {
		return "the agent that uses the sandbox " + vpath.Escape(name) + " waits for your answer"
	}
	return "a program in the sandbox " + vpath.Escape(name) + " waits for your answer"
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

// Choice is an answer that allows, and what is typed behind the word to give it.
type Choice struct {
	Text, Suffix string
	Scope        api.Scope
}

// Choices are the answers that allow an ask. isOfProject says that answers may be for the project.
func Choices(a api.Ask, isOfProject bool) []Choice {
	once := "Allow it once"
	if a.Requested {
		once = "Allow it for 10 minutes"
	}
	choices := []Choice{{once, "", api.ScopeOnce}}
	if a.Mount != "" { // its policy does not change while the sandbox runs
		return choices
	}
	choices = append(choices, Choice{"Allow it in this sandbox", " sandbox", api.ScopeSandbox})
	if isOfProject {
		choices = append(choices, Choice{"Allow it in this project, also later", " project", api.ScopeProject})
	}
	return choices
}

// AllowingAnswer reads what was typed. Only the word, with what a choice has behind it, allows.
func AllowingAnswer(line, word string, choices []Choice) (a api.Answer, allows bool) {
	text := strings.Join(strings.Fields(line), " ")
	for _, c := range choices {
		if text == word+c.Suffix {
			return api.Answer{Allow: true, Scope: c.Scope}, true
		}
	}
	return api.Answer{Scope: api.ScopeOnce}, false
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

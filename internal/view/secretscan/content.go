package secretscan

import (
	"bytes"
	"regexp"
	"sync"
)

// shape is a kind of token that has a recognisable form.
type shape struct {
	marker  string                // searched first; the token begins at it
	pattern func() *regexp.Regexp // anchored at the marker; made when it is needed
	kind    Kind
	reason  string
	test    bool // reported in test data too, because people do not invent such tokens
}

// at compiles a pattern that begins at the marker.
func at(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A(?:` + pattern + `)`) })
}

// shapes are taken from the services' documentation of their tokens, and from gitleaks and
// detect-secrets.
var shapes = []shape{
	{"-----BEGIN ", at(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:\s|\\r|\\n|[A-Za-z-]+: [^\n]*\n)*[A-Za-z0-9+/=]{40}`), PrivateKey, "private key", false},
	{"PuTTY-User-Key-File-", at(`PuTTY-User-Key-File-[23]: `), PrivateKey, "private key of PuTTY", false},
	{"AKIA", at(`AKIA[A-Z2-7]{16}\b`), Token, "AWS access key", true},
	{"ASIA", at(`ASIA[A-Z2-7]{16}\b`), Token, "AWS access key", true},
	{"ghp_", at(`ghp_[A-Za-z0-9]{36}`), Token, "GitHub token", true},
	{"gho_", at(`gho_[A-Za-z0-9]{36}`), Token, "GitHub token", true},
	{"ghs_", at(`ghs_[A-Za-z0-9]{36}`), Token, "GitHub token", true},
	{"ghr_", at(`ghr_[A-Za-z0-9]{36}`), Token, "GitHub token", true},
	{"github_pat_", at(`github_pat_[A-Za-z0-9_]{50}`), Token, "GitHub token", true},
	{"glpat-", at(`glpat-[A-Za-z0-9_-]{20}`), Token, "GitLab token", true},
	{"xox", at(`xox[abprs]-[A-Za-z0-9-]{20}`), Token, "Slack token", true},
	{"hooks.slack.com/services/T", at(`hooks\.slack\.com/services/T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{20}`), Token, "Slack webhook", true},
	{"sk_live_", at(`sk_live_[A-Za-z0-9]{20}`), Token, "Stripe key", true},
	{"rk_live_", at(`rk_live_[A-Za-z0-9]{20}`), Token, "Stripe key", true},
	{"AIza", at(`AIza[A-Za-z0-9_-]{35}\b`), Token, "Google API key", true},
	{"npm_", at(`npm_[A-Za-z0-9]{36}\b`), Token, "npm token", true},
	{"_authToken", at(`_authToken\s*=\s*[^\s$"'{]{16}`), Token, "npm token", true},
	{"pypi-AgEI", at(`pypi-AgEI[A-Za-z0-9_-]{50}`), Token, "PyPI token", true},
	{"sk-ant-", at(`sk-ant-[A-Za-z0-9_-]{24}`), Token, "Anthropic key", true},
	{"sk-proj-", at(`sk-proj-[A-Za-z0-9_-]{24}`), Token, "OpenAI key", true},
	{"SG.", at(`SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}`), Token, "SendGrid key", true},
	{"hvs.", at(`hvs\.[A-Za-z0-9_-]{24}`), Token, "Vault token", true},
	{"dop_v1_", at(`dop_v1_[a-f0-9]{64}`), Token, "DigitalOcean token", true},
	{"eyJ", at(`eyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{20,}`), Token, "JSON web token", false},
	{`"private_key_id"`, at(`"private_key_id"\s*:\s*"[a-f0-9]{40}"`), PrivateKey, "Google Cloud service account key", false},
}

// findContent returns the first secret in text, the beginning of a file. guess also allows
// secrets found by entropy only. sample says that the file is test data.
func findContent(text []byte, guess, sample bool) (f Finding, found bool) {
	for _, s := range shapes {
		if sample && !s.test {
			continue
		}
		for from := 0; ; {
			i := bytes.Index(text[from:], []byte(s.marker))
			if i < 0 {
				break
			}
			i += from
			from = i + len(s.marker)
			token := s.pattern().Find(text[i:])
			if token == nil || i > 0 && isWord(text[i-1]) && isWord(s.marker[0]) || isPlaceholder(token) {
				continue
			}
			return Finding{Line: lineOf(text, i), Kind: s.kind, Reason: s.reason}, true
		}
	}
	if sample || !guess {
		return Finding{}, false
	}
	return findAssignment(text)
}

func lineOf(text []byte, offset int) int { return 1 + bytes.Count(text[:offset], []byte{'\n'}) }

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// placeholders occur in the values that documentation shows in place of secrets.
var placeholders = [][]byte{
	[]byte("example"), []byte("xxxx"), []byte("your"), []byte("changeme"), []byte("change_me"), []byte("placeholder"), []byte("dummy"),
	[]byte("fake"), []byte("sample"), []byte("12345678"), []byte("abcdefgh"), []byte("...."), []byte("****"), []byte("todo"), []byte("insert"),
}

func isPlaceholder(token []byte) bool {
	lower := bytes.ToLower(token)
	for _, p := range placeholders {
		if bytes.Contains(lower, p) {
			return true
		}
	}
	return false
}

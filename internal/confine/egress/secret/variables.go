package secret

// baseURLs are the variables by which programs of a service take another address for it, and what
// stands behind the host there.
var baseURLs = map[string]struct{ name, path string }{
	"ANTHROPIC_API_KEY":    {"ANTHROPIC_BASE_URL", ""},
	"ANTHROPIC_AUTH_TOKEN": {"ANTHROPIC_BASE_URL", ""},
	"OPENAI_API_KEY":       {"OPENAI_BASE_URL", "/v1"},
	"GEMINI_API_KEY":       {"GOOGLE_GEMINI_BASE_URL", ""},
	"GROQ_API_KEY":         {"GROQ_BASE_URL", ""},
}

// URL is where a program inside finds the first host of a secret.
func (s Secret) URL() string { return "http://" + string(s.Inside(0)) }

// Variables are the variables that commands inside have because of a secret: where its host is, if
// programs are known to look for that in a variable, and the placeholder.
func (s Secret) Variables() (address []string, placeholder string) {
	if base, known := baseURLs[s.Name]; known {
		address = []string{base.name + "=" + s.URL() + base.path}
	}
	return address, s.Name + "=" + s.Placeholder
}

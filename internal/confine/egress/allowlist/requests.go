package allowlist

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// requestSeparator stands between the requests of a rule.
const requestSeparator = ";"

// canonicalRequests returns the one form of METHOD[,METHOD…] PATH[; …], each once.
func canonicalRequests(text string) (string, error) {
	var list []string
	for part := range strings.SplitSeq(text, requestSeparator) {
		l, err := ParseRequests(strings.Trim(part, " "))
		if err != nil {
			return "", err
		}
		if !slices.Contains(list, l.String()) {
			list = append(list, l.String())
		}
	}
	return strings.Join(list, requestSeparator+" "), nil
}

// Limits are the requests that r allows; none: all.
func (r Rule) Limits() []Limit {
	if r.Requests == "" {
		return nil
	}
	var limits []Limit
	for part := range strings.SplitSeq(r.Requests, requestSeparator+" ") {
		methods, path, _ := strings.Cut(part, " ")
		limits = append(limits, Limit{strings.Split(methods, ","), path})
	}
	return limits
}

// includesRequests reports whether r, which intercepts, allows all requests that other allows.
func (r Rule) includesRequests(other Rule) bool {
	if !other.Intercept || r.Requests == "" {
		return other.Intercept
	}
	limits := r.Limits()
	return other.Requests != "" && !slices.ContainsFunc(other.Limits(), func(asked Limit) bool {
		return !slices.ContainsFunc(limits, func(l Limit) bool { return l.includes(asked) })
	})
}

// Keeps reports whether a connection that other has allowed goes on when r takes its place.
func (r Rule) Keeps(other Rule) bool {
	if r.Intercept {
		return other.Intercept && other.Requests == r.Requests
	}
	return r.Raw || !other.Raw
}

// Intercepts reports whether one of the rules that are about h intercepts.
func Intercepts(rules []Rule, h Host) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.Intercept && r.Covers(h) })
}

// LimitTo allows requests only: each text is HOST[:PORT]=METHOD[,METHOD…] PATH, or such a request
// for all hosts of a @PRESET. Its hosts are intercepted, and have no other requests but those that
// rules name for them. Errors: Invalid.
func LimitTo(rules []Rule, texts []string) ([]Rule, error) {
	rules = slices.Clone(rules)
	for _, text := range texts {
		entry, request, given := strings.Cut(text, "=")
		l, err := ParseRequests(request)
		if !given || err != nil {
			return nil, invalidRule(text, "want HOST[:PORT]=METHOD[,METHOD…] PATH, such as 'pypi.org=GET /simple/**'")
		}
		hosts, err := parseEntry(entry)
		if err != nil {
			return nil, err
		}
		for _, h := range hosts {
			if h.Raw || h.Intercept {
				return nil, invalidRule(text, "want no option behind the host")
			}
			if rules, err = limit(rules, h, l); err != nil {
				return nil, err
			}
		}
	}
	return Parse(Texts(rules))
}

// limit adds a request to those of the host h.
func limit(rules []Rule, h Rule, l Limit) ([]Rule, error) {
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Place() == h.Place() })
	if i < 0 {
		rules, i = append(rules, h), len(rules)
	}
	r := &rules[i]
	if r.Raw {
		return nil, errdefs.New(errdefs.Invalid, "%s: allows any protocol, in which no requests are seen", r)
	}
	requests := l.String()
	if r.Requests != "" {
		requests = r.Requests + requestSeparator + requests
	}
	var err error
	r.Intercept = true
	r.Requests, err = canonicalRequests(requests)
	return rules, err
}

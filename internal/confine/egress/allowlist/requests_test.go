package allowlist

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestRulesWithRequestsHaveOneForm(t *testing.T) {
	for text, want := range map[string]string{
		"example.com,intercept":                                    "example.com:443,intercept",
		"*.example.com:80,intercept GET /a":                        "*.example.com:80,intercept GET /a",
		"example.com,intercept GET,HEAD /a/**;POST /b;  POST /b":   "example.com:443,intercept GET,HEAD /a/**; POST /b",
		"10.1.2.3:8443,intercept * /**":                            "10.1.2.3:8443,intercept * /**",
		"example.com,raw GET /a":                                   "",
		"example.com,intercept ":                                   "",
		"example.com,intercept GET /a;":                            "",
		"example.com,intercept get /a":                             "",
		"example.com,intercept GET a":                              "",
		"example.com,intercept GET /a?b":                           "",
		"example.com,intercept GET /a%2fb":                         "",
		"example.com,intercept GET /a\n":                           "",
		"example.com,intercept,raw":                                "",
		"example.com,intercepts":                                   "",
		"example.com,intercept GET /" + strings.Repeat("a/**/", 3): "",
	} {
		r, err := ParseRule(text)
		if want == "" {
			if !errdefs.Is(err, errdefs.Invalid) {
				t.Errorf("ParseRule(%q) = %v, %v; want Invalid", text, r, err)
			}
			continue
		}
		if err != nil || r.String() != want {
			t.Errorf("ParseRule(%q) = %v, %v; want %s", text, r, err, want)
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Errorf("ParseRule(%q) = %v, %v; want the same rule", r, again, err)
		}
	}
}

func TestRequestsAreThoseOfTheRule(t *testing.T) {
	r := rules(t, "example.com,intercept GET,HEAD /a/**; * /all; GET /**")[0]
	want := []Limit{{[]string{"GET", "HEAD"}, "/a/**"}, {[]string{"*"}, "/all"}, {[]string{"GET"}, "/**"}}
	if diff := cmp.Diff(want, r.Limits()); diff != "" {
		t.Error(diff)
	}
	if limits := rules(t, "example.com,intercept")[0].Limits(); limits != nil {
		t.Errorf("a rule without requests has %v", limits)
	}
}

// A pattern of all paths needs no look at how they are written: npm asks for /@scope%2fname.
func TestAPatternOfAllPathsIncludesEverySpelling(t *testing.T) {
	all, some := rules(t, "a.example,intercept GET /**")[0].Limits(), rules(t, "a.example,intercept GET /@scope/**")[0].Limits()
	u, err := url.ParseRequestURI("/@scope%2fname")
	if err != nil {
		t.Fatal(err)
	}
	if !Allows(all, "GET", u) || Allows(all, "PUT", u) || Allows(some, "GET", u) {
		t.Errorf("all: %t, another method: %t, another pattern: %t", Allows(all, "GET", u), Allows(all, "PUT", u), Allows(some, "GET", u))
	}
}

func TestRequestsAreAddedToHosts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rules  []string
		limits []string
		want   []string // nil: refused
	}{
		{"a new host", nil, []string{"example.com=GET /a"}, []string{"example.com:443,intercept GET /a"}},
		{"a host that is allowed", []string{"example.com"}, []string{"example.com=GET /a", "example.com=POST /b"}, []string{"example.com:443,intercept GET /a; POST /b"}},
		{"another port", []string{"example.com"}, []string{"example.com:80=GET /a"}, []string{"example.com:443", "example.com:80,intercept GET /a"}},
		{"an intercepted host", []string{"example.com,intercept"}, []string{"example.com=GET /a"}, []string{"example.com:443,intercept GET /a"}},
		{"a host of a preset", []string{"@npm,intercept"}, []string{"registry.npmjs.org=POST /-/npm/**"}, []string{"registry.npmjs.org:443,intercept GET,HEAD /**; POST /-/npm/**"}},
		{"a preset", []string{"@pypi"}, []string{"@pypi=GET /simple/**"}, []string{"pypi.org:443,intercept GET /simple/**", "files.pythonhosted.org:443,intercept GET /simple/**"}},
		{"a domain", nil, []string{"*.example.com=GET /a"}, []string{"*.example.com:443,intercept GET /a"}},
		{"any protocol", []string{"example.com,raw"}, []string{"example.com=GET /a"}, nil},
		{"an option", nil, []string{"example.com,intercept=GET /a"}, nil},
		{"no request", nil, []string{"example.com"}, nil},
		{"no path", nil, []string{"example.com=GET"}, nil},
		{"two rules for a host", []string{"example.com", "example.com,intercept"}, nil, nil},
		{"too much", nil, []string{"example.com=GET /" + strings.Repeat("a", maxTexts)}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parsed, err := Parse(tt.rules)
			if err == nil {
				parsed, err = LimitTo(parsed, tt.limits)
			}
			if tt.want == nil {
				if !errdefs.Is(err, errdefs.Invalid) {
					t.Errorf("got %v, %v; want Invalid", Texts(parsed), err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, Texts(parsed)); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func TestRulesIncludeOthersByTheirRequests(t *testing.T) {
	for _, tt := range []struct {
		rule, other     string
		includes, keeps bool // keeps: connections of other
	}{
		{"a.example", "a.example,intercept GET /a", true, true},
		{"a.example,raw", "a.example,intercept", true, true},
		{"a.example,intercept", "a.example", false, false},
		{"a.example,intercept", "a.example,raw", false, false},
		{"a.example,intercept", "a.example,intercept GET /a", true, false},
		{"a.example,intercept GET /a", "a.example,intercept", false, false},
		{"a.example,intercept GET /a", "a.example,intercept GET /a", true, true},
		{"a.example,intercept GET,POST /a", "a.example,intercept GET /a", true, false},
		{"a.example,intercept GET /a", "a.example,intercept GET,POST /a", false, false},
		{"a.example,intercept * /a", "a.example,intercept GET,POST /a", true, false},
		{"a.example,intercept GET /a/**", "a.example,intercept GET /a/b; GET /a; GET /a/*/**", true, false},
		{"a.example,intercept GET /a/**", "a.example,intercept GET /ab", false, false},
		{"a.example,intercept GET /a/**", "a.example,intercept GET /**", false, false},
		{"a.example,intercept GET /**", "a.example,intercept GET /a/**", true, false},
		{"a.example,intercept GET /*/**", "a.example,intercept GET /a/**", false, false},
		{"a.example,intercept GET /a; POST /b", "a.example,intercept POST /b", true, false},
		{"*.example.com,intercept GET /a", "x.example.com,intercept GET /a", true, true},
	} {
		r, other := rules(t, tt.rule)[0], rules(t, tt.other)[0]
		if got := r.Includes(other); got != tt.includes {
			t.Errorf("%s includes %s: %t", r, other, got)
		}
		if got := r.Keeps(other); got != tt.keeps {
			t.Errorf("%s keeps connections of %s: %t", r, other, got)
		}
	}
}

// What a rule includes by its text it allows by its requests.
func FuzzIncludedRequestsAreAllowed(f *testing.F) {
	f.Add("GET /a/**", "GET /a/b", "GET", "/a/b")
	f.Add("* /**", "GET,POST /a", "POST", "/a")
	f.Add("GET /a/**", "GET /**", "GET", "/%2e%2e/a")
	f.Fuzz(func(t *testing.T, outer, inner, method, path string) {
		r, err := ParseRule("a.example,intercept " + outer)
		other, err2 := ParseRule("a.example,intercept " + inner)
		u, err3 := url.ParseRequestURI(path)
		if err != nil || err2 != nil || err3 != nil || !r.Includes(other) {
			return
		}
		if Allows(other.Limits(), method, u) && !Allows(r.Limits(), method, u) {
			t.Errorf("%s includes %s, and does not allow %s %s", r, other, method, path)
		}
	})
}

package policy

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy/glob"
)

// matchOne tells whether pattern, of type glob, matches path.
func matchOne(t testing.TB, pattern string, path vpath.Path) bool {
	t.Helper()
	p, err := Compile([]Rule{{Pattern: pattern, Type: Glob, Permission: Read}}, Options{})
	if err != nil {
		t.Fatalf("Compile(%q): %v", pattern, err)
	}
	return p.Decide(path).Permission == Read
}

func TestGlobMatches(t *testing.T) {
	tests := []struct {
		name, pattern string
		match, differ []vpath.Path
	}{
		{
			"a star stays within one element", "/src/*.go",
			[]vpath.Path{"/src/a.go", "/src/.go"},
			[]vpath.Path{"/src/x/a.go", "/src/a.gox", "/src", "/a.go"},
		},
		{
			"two stars cross elements, and none", "/src/**/a",
			[]vpath.Path{"/src/a", "/src/x/a", "/src/x/y/a"},
			[]vpath.Path{"/a", "/src/x/b", "/srcx/a"},
		},
		{
			"two stars at the end match the directory too", "/src/**",
			[]vpath.Path{"/src", "/src/a", "/src/a/b"},
			[]vpath.Path{"/", "/src-secret", "/src-secret/a"},
		},
		{
			"two stars after a wildcard match the directory too", "/s*/**",
			[]vpath.Path{"/s", "/src", "/src/a"},
			[]vpath.Path{"/", "/a/s"},
		},
		{
			"two stars alone match everything and the root", "**",
			[]vpath.Path{"/", "/a", "/a/b"},
			nil,
		},
		{
			"two stars and a star match everything and the root", "**/*",
			[]vpath.Path{"/", "/a", "/a/b"},
			nil,
		},
		{
			"a star after a slash does not match the root", "/*",
			[]vpath.Path{"/a"},
			[]vpath.Path{"/", "/a/b"},
		},
		{
			"two stars within an element are one", "/a**c",
			[]vpath.Path{"/ac", "/abc"},
			[]vpath.Path{"/a/c", "/ab"},
		},
		{
			"a question mark takes one character", "/a?c",
			[]vpath.Path{"/abc", "/aéc", "/a\u202ec"},
			[]vpath.Path{"/ac", "/abbc", "/a/c"},
		},
		{
			"a question mark takes one byte of broken UTF-8", "/a?c",
			[]vpath.Path{"/a\xffc", "/a\xc3c"},
			[]vpath.Path{"/a\xff\xffc"},
		},
		{
			"a class takes one of its characters", "/[a-cé]",
			[]vpath.Path{"/a", "/c", "/é"},
			[]vpath.Path{"/d", "/", "/aa", "/\xc3", "/\xff"},
		},
		{
			"a negated class takes any other character or broken byte", "/[!a-c]",
			[]vpath.Path{"/d", "/é", "/\xff"},
			[]vpath.Path{"/a", "/", "/dd"},
		},
		{
			"a negated class never sees a part of a character", "/*[^é]",
			[]vpath.Path{"/éx", "/\xff"},
			[]vpath.Path{"/é", "/xé"},
		},
		{
			"a negated class does not match a slash", "/a[^b]c",
			[]vpath.Path{"/axc"},
			[]vpath.Path{"/a/c", "/abc"},
		},
		{
			"a class may hold a closing bracket, a dash and a caret", `/[\]^-]`,
			[]vpath.Path{"/]", "/-", "/^"},
			[]vpath.Path{"/[", "/a"},
		},
		{
			"a class may hold braces and commas", "/[{,}]{a,b[,]}",
			[]vpath.Path{"/{a", "/,b,"},
			[]vpath.Path{"/a", "/{b"},
		},
		{
			"broken UTF-8 is compared byte by byte", "/caf\xe9*",
			[]vpath.Path{"/caf\xe9", "/caf\xe9s"},
			[]vpath.Path{"/caf\xe8", "/café", "/caf\ufffd"},
		},
		{
			"the replacement character stands for no broken byte", "/a\ufffd*",
			[]vpath.Path{"/a\ufffd"},
			[]vpath.Path{"/a\xff", "/a\xef"},
		},
		{
			"a star finds a broken byte behind anything", "/*\xa9x",
			[]vpath.Path{"/\xa9x", "/a\xa9x", "/\xff\xa9x"},
			[]vpath.Path{"/\xa9"},
		},
		{
			"broken bytes do not shield a name from a rule", "*.pem",
			[]vpath.Path{"/\xff.pem", "/a\xf0.pem", "/\xe2\x82/\xe2\x82.pem"},
			[]vpath.Path{"/a.pem\xff"},
		},
		{
			"a backslash takes away a meaning", `/\*\?\[\{a\,b\}\\`,
			[]vpath.Path{`/*?[{a,b}\`},
			[]vpath.Path{`/x?[{a,b}\`},
		},
		{
			"braces are several patterns", "/{a,b/c,}x",
			[]vpath.Path{"/ax", "/b/cx", "/x"},
			[]vpath.Path{"/bx", "/cx", "/a"},
		},
		{
			"braces nest", "/{a,{b,c}d}",
			[]vpath.Path{"/a", "/bd", "/cd"},
			[]vpath.Path{"/b", "/ad", "/c"},
		},
		{
			"an empty alternative drops an element", "/{a/,}b",
			[]vpath.Path{"/a/b", "/b"},
			[]vpath.Path{"/a"},
		},
		{
			"a slash at the end of an alternative means all below", "/{a/,b}",
			[]vpath.Path{"/a", "/a/x", "/b"},
			[]vpath.Path{"/b/x"},
		},
		{
			"doubled slashes and dots are dropped", "//a/./*",
			[]vpath.Path{"/a/b"},
			[]vpath.Path{"/a", "/b"},
		},
		{
			"case counts", "/A*",
			[]vpath.Path{"/Ab"},
			[]vpath.Path{"/ab"},
		},
		{
			"composed and decomposed characters differ", "/\u00e9*",
			[]vpath.Path{"/\u00e9"},
			[]vpath.Path{"/e\u0301"},
		},
		{
			"a newline and an escape are characters", "/a?b*",
			[]vpath.Path{"/a\nb\x1b[0m"},
			nil,
		},
		{
			"many stars find their way back", "/*a*a*a*b",
			[]vpath.Path{"/aaaaaaaaab", vpath.Path("/" + strings.Repeat("a", 250) + "b")},
			[]vpath.Path{vpath.Path("/" + strings.Repeat("a", 255)), "/aab"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, p := range tt.match {
				if !matchOne(t, tt.pattern, p) {
					t.Errorf("%q does not match %q", tt.pattern, p)
				}
			}
			for _, p := range tt.differ {
				if matchOne(t, tt.pattern, p) {
					t.Errorf("%q matches %q", tt.pattern, p)
				}
			}
		})
	}
}

func TestMalformedPatternsAreRefused(t *testing.T) {
	tests := []struct{ name, pattern, want string }{
		{"the empty pattern", "", "empty"},
		{"a class without an end", "a[b", "] is missing"},
		{"a class whose end is escaped", `a[b\]`, "] is missing"},
		{"an empty class", "a[]b", "class is empty"},
		{"an empty negated class", "a[!]b", "class is empty"},
		{"a slash in a class", "a[/]b", "cannot hold a slash"},
		{"an empty range", "[z-a]", `range "z-a"`},
		{"a named class", "[[:alpha:]]", "named class"},
		{"broken UTF-8 in a class", "[\xff]", "byte 0xff"},
		{"a brace without an end", "a{b,c", "} is missing"},
		{"a brace without a beginning", "a*b,c}", "{ is missing"},
		{"a brace that ends in a class", "{a,[}b]", "} is missing"},
		{"a backslash at the end", `a*\`, "escapes nothing"},
		{"an escaped slash", `a*\/b`, "escapes nothing"},
		{"two dots", "a/../*", "not allowed"},
		{"two dots without a wildcard", "../a", "not allowed"},
		{"two dots by braces", "/a/{b,..}/c", "not allowed"},
		{"an escaped dot alone", `/\./*`, "not allowed"},
		{"a NUL", "a\x00b", "NUL"},
		{"a negation as in gitignore", "!*.pem", "cannot be negated"},
		{"a literal name that is too long", strings.Repeat("n", 256), "longer than 255"},
		{"a glob no name is long enough for", strings.Repeat("n", 250) + "??????*", "no name is as long"},
		{"a pattern longer than any path", strings.Repeat("a/", 2049), "longer than 4096"},
		{"more two-star elements than can be matched", strings.Repeat("**/a/", 17) + "b", "17 times **"},
		{"braces that stand for too many patterns", strings.Repeat("{a,b}", 11), "more than 1024"},
		{"braces of braces that stand for too many", strings.Repeat("{,", 500) + strings.Repeat("}", 500) + strings.Repeat("{,}", 20), "more than 1024"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rule := Rule{Pattern: tt.pattern, Source: "policy.yaml:3"}
			_, err := Compile([]Rule{rule}, Options{})
			if !errdefs.Is(err, errdefs.Invalid) {
				t.Fatalf("Compile(%q) error = %v, want Invalid", tt.pattern, err)
			}
			if text := err.Error(); !strings.HasPrefix(text, "policy.yaml:3: pattern ") || !strings.Contains(text, tt.want) {
				t.Errorf("Compile(%q) error = %q, want policy.yaml:3: … %q", tt.pattern, text, tt.want)
			}
		})
	}
}

func TestErrorsShowPatternsEscapedAndNumberRulesWithoutSource(t *testing.T) {
	_, err := Compile([]Rule{{Pattern: "ok"}, {Pattern: "\x1b[2J["}}, Options{})
	want := `rule 2: pattern "\x1b[2J[": a class is not closed: ] is missing`
	if err == nil || err.Error() != want {
		t.Errorf("Compile error = %v, want %s", err, want)
	}
}

// FuzzGlobElement compares the matching of one element with doublestar's, for
// patterns that are valid UTF-8 (others doublestar cannot tell apart) and
// without neighbouring stars (there it does not see that they match nothing).
func FuzzGlobElement(f *testing.F) {
	for _, s := range []string{"*", "a?c", "[a-c]*", `\*`, "[^é]x", "*.pem", "a*b*c", "{a,b}*", "?", "[a-]", "[]-a]", "[--a]", "[[-a]"} {
		f.Add(s, "abc")
		f.Add(s, "é\xffx.pem")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if !utf8.ValidString(pattern) || strings.ContainsAny(pattern, "/\ufffd") ||
			strings.Contains(pattern, "**") || vpath.CheckName(name) != nil {
			return
		}
		tokens, err := parseTokensOf(pattern)
		if err != nil || len(tokens) == 0 || len(tokens) > 32 { // doublestar takes long for many
			return
		}
		if !doublestar.ValidatePattern(pattern) {
			t.Fatalf("%q is accepted, doublestar refuses it", pattern)
		}
		got := false
		for _, alternative := range tokens {
			got = got || glob.New("", alternative).Match(name)
		}
		if want := doublestar.MatchUnvalidated(pattern, name); got != want {
			t.Errorf("%q matches %q: %v, doublestar %v", pattern, name, got, want)
		}
	})
}

// parseTokensOf returns the tokens of each alternative of one element.
func parseTokensOf(pattern string) ([][]glob.Token, error) {
	texts, err := expandBraces(pattern)
	if err != nil {
		return nil, err
	}
	var out [][]glob.Token
	for _, s := range texts {
		tokens, err := glob.Parse(s)
		if err != nil {
			return nil, err
		}
		if len(tokens) > 0 {
			out = append(out, tokens)
		}
	}
	return out, nil
}

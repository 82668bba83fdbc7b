package glob_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy/glob"
)

func parse(t testing.TB, patterns ...string) []*glob.Glob {
	t.Helper()
	out := make([]*glob.Glob, len(patterns))
	for i, pattern := range patterns {
		tokens, err := glob.Parse(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = glob.New(pattern, tokens)
	}
	return out
}

func TestClassesAreTheCombinationsThatNamesHave(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patterns []string
		except   []string
		want     []string
	}{
		{"no pattern", nil, nil, []string{"[]"}},
		{"suffixes exclude each other", []string{"*.pem", "*.key"}, nil, []string{"[]", "[0]", "[1]"}},
		{"a suffix within another", []string{"*.b", "*.a.b"}, nil, []string{"[]", "[0 1]", "[0]"}},
		{"a prefix and a suffix", []string{"a*", "*z"}, nil, []string{"[]", "[0 1]", "[0]", "[1]"}},
		{"a name that is excepted is the only one", []string{"[a]", "[b]"}, []string{"a"}, []string{"[]", "[1]"}},
		{"what is left beside an excepted name", []string{"a*", "ab*"}, []string{"a", "ab"}, []string{"[]", "[0 1]", "[0]"}},
		{"dots are no names", []string{"[.]", ".[.]", ".?"}, nil, []string{"[]", "[2]"}},
		{"one character or two bytes", []string{"?", "??"}, nil, []string{"[]", "[0]", "[1]"}},
		{"a literal in the middle of a character", []string{"*\xa9", "?"}, nil, []string{"[]", "[0 1]", "[0]", "[1]"}},
		{"classes with common characters", []string{"[a-m]", "[k-z]", "[^k]"}, nil, []string{"[]", "[0 1 2]", "[0 1]", "[0 2]", "[1 2]", "[2]"}},
		{"no name is long enough", []string{strings.Repeat("a", 200) + "*", "*" + strings.Repeat("b", 200)}, nil, []string{"[]", "[0]", "[1]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			globs := parse(t, tt.patterns...)
			classes, err := glob.Classes(globs, tt.except)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range classes {
				got = append(got, fmt.Sprint(c.Matched))
				checkExample(t, globs, tt.except, c)
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func checkExample(t *testing.T, globs []*glob.Glob, except []string, c glob.NameClass) {
	t.Helper()
	if got := glob.Matching(globs, c.Example); !slices.Equal(got, c.Matched) {
		t.Errorf("%q is an example of %v and matches %v", c.Example, c.Matched, got)
	}
	if err := vpath.CheckName(c.Example); err != nil {
		t.Error(err)
	}
	if slices.Contains(except, c.Example) {
		t.Errorf("%q is excepted", c.Example)
	}
}

// pieces are what random globs and names are made of: characters of every length, their parts, and
// what is next to the bounds of UTF-8.
var pieces = []string{
	"a", "b", ".", "\xc3", "\xa9", "é", "\xe2", "\x82\xac", "€", "\xed\x9f", "\xbf", "\xed\xa0\x80", "\U0001f600", "\xf0\x9f", "\xf4\x90", "\x7f", "\xff", "\xef\xbf\xbd",
}

var wildcards = []string{"*", "*", "*", "?", "[ab]", "[^a]", "[^é]", "[é-€]", "[a-\U0001f600]"}

func randomGlob(r *rand.Rand, valid bool) string {
	for {
		var b strings.Builder
		for range 1 + r.IntN(5) {
			if r.IntN(2) == 0 {
				b.WriteString(wildcards[r.IntN(len(wildcards))])
			} else {
				b.WriteString(piece(r, valid))
			}
		}
		if s := b.String(); strings.ContainsAny(s, "*?[") {
			return s
		}
	}
}

func piece(r *rand.Rand, valid bool) string {
	if valid {
		return []string{"a", "b", ".", "é", "€", "\U0001f600", "\xef\xbf\xbd"}[r.IntN(7)]
	}
	return pieces[r.IntN(len(pieces))]
}

func randomName(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(7) {
		b.WriteString(piece(r, false))
	}
	return b.String()
}

// TestClassesAreExact looks at every random name: what it matches must be one of the classes, and
// each class must be what its example matches.
func TestClassesAreExact(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		patterns := make([]string, 1+r.IntN(4))
		for i := range patterns {
			patterns[i] = randomGlob(r, r.IntN(2) == 0)
		}
		globs := parse(t, patterns...)
		except := []string{randomName(r), "a"}
		classes, err := glob.Classes(globs, except)
		if errors.Is(err, glob.ErrTooComplex) {
			continue
		}
		known := map[string]bool{}
		for _, c := range classes {
			known[fmt.Sprint(c.Matched)] = true
			checkExample(t, globs, except, c)
		}
		for range 200 {
			name := randomName(r)
			if vpath.CheckName(name) != nil || slices.Contains(except, name) {
				continue
			}
			if got := fmt.Sprint(glob.Matching(globs, name)); !known[got] {
				t.Errorf("seed %d: %q: %q matches %s, which is not among %v", seed, patterns, name, got, classes)
			}
		}
		if t.Failed() {
			return
		}
	}
}

func TestPatternsThatMultiplyAreRefused(t *testing.T) {
	var patterns []string
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		patterns = append(patterns, "*"+string(c)+"*")
	}
	if _, err := glob.Classes(parse(t, patterns...), nil); !errors.Is(err, glob.ErrTooComplex) {
		t.Errorf("error = %v, want ErrTooComplex", err)
	}
}

func BenchmarkClassesOfAThousandSuffixes(b *testing.B) {
	var patterns []string
	for i := range 1000 {
		patterns = append(patterns, fmt.Sprintf("*.ext%d", i))
	}
	globs := parse(b, patterns...)
	for b.Loop() {
		if classes, err := glob.Classes(globs, nil); err != nil || len(classes) != 1001 {
			b.Fatal(len(classes), err)
		}
	}
}

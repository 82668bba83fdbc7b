package secret

import (
	"bytes"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestSecretsHaveOneForm(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"of the variable of that name", "API_KEY@api.example.com", "API_KEY=env:API_KEY@api.example.com:443"},
		{"of another variable", "API_KEY=env:MINE@api.example.com:8443", "API_KEY=env:MINE@api.example.com:8443"},
		{"of a file, whose name may have any character", "API_KEY=file:/a@b,c=d@api.example.com", "API_KEY=file:/a@b,c=d@api.example.com:443"},
		{"of a command", "API_KEY=cmd:pass show me@work@Api.Example.com.", "API_KEY=cmd:pass show me@work@api.example.com:443"},
		{"of a JSON file", "API_KEY=json:a.b:/path:x@Api.Example.com", "API_KEY=json:a.b:/path:x@api.example.com:443"},
		{"for two hosts", "A@a.example.com,b.example.com", "A=env:A@a.example.com:443,b.example.com:443"},
		{"for an address", "A@10.1.2.3:8443", "A=env:A@10.1.2.3:8443"},
		{"no host", "A", ""},
		{"an empty host", "A@", ""},
		{"an empty second host", "A@a.example.com,", ""},
		{"a wildcard", "A@*.example.com", ""},
		{"a host inside", "A@b.agentfense.internal", ""},
		{"a URL", "A@https://a.example.com", ""},
		{"a port of localhost", "A@localhost:8000", "A=env:A@localhost:8000"},
		{"localhost without a port", "A@localhost", ""},
		{"below localhost", "A@a.localhost:8000", ""},
		{"no name", "@a.example.com", ""},
		{"a digit first", "1A@a.example.com", ""},
		{"a dash", "A-B@a.example.com", ""},
		{"an underscore last", "A_@a.example.com", ""},
		{"two underscores", "A__B@a.example.com", ""},
		{"a long name", strings.Repeat("A", 60) + "@a.example.com", ""},
		{"an unknown source", "A=vault:x@a.example.com", ""},
		{"an empty source", "A=file:@a.example.com", ""},
		{"a value", "A=sk-123@a.example.com", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Parse(tt.text)
			if tt.want == "" {
				if !errdefs.Is(err, errdefs.Invalid) {
					t.Errorf("got %+v, %v; want Invalid", s, err)
				}
				return
			}
			if err != nil || s.String() != tt.want {
				t.Fatalf("got %s, %v; want %s", s, err, tt.want)
			}
			again, err := Parse(s.String())
			if diff := cmp.Diff(s, again); err != nil || diff != "" {
				t.Errorf("read again: %v %s", err, diff)
			}
		})
	}
}

func TestASecretGuardsItsHosts(t *testing.T) {
	s, err := Parse("A@api.example.com,localhost:8000")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host   allowlist.Host
		port   uint16
		inside allowlist.Host // "": it is not guarded
	}{
		{"api.example.com", 443, "a.agentfense.internal"},
		{"api.example.com", 80, "a.agentfense.internal"},
		{"localhost", 8000, "a-2.agentfense.internal"},
		{"localhost", 8001, ""},
		{"other.example.com", 443, ""},
	} {
		if _, inside, guarded := Guarding([]Secret{s}, tt.host, tt.port); inside != tt.inside || guarded != (tt.inside != "") {
			t.Errorf("%s:%d: %q, %t", tt.host, tt.port, inside, guarded)
		}
	}
}

func FuzzSecret(f *testing.F) {
	f.Add("API_KEY=cmd:pass show x@api.example.com,b.example.com:8443")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(s.String()); err != nil || again.String() != s.String() {
			t.Errorf("%q: %q reads as %q, %v", text, s, again, err)
		}
	})
}

func TestSecretsAreToldApart(t *testing.T) {
	parse := func(text string) Secret {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two := parse("API_KEY@a.example.com,b.example.com"), parse("API_KEY_2@c.example.com")
	if got := one.Inside(0) + " " + one.Inside(1); got != "api-key.agentfense.internal api-key-2.agentfense.internal" {
		t.Error(got)
	}
	for _, all := range [][]Secret{{one, two}, {one, one}, {one, parse("api_key@d.example.com")}} {
		if err := Check(all); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%v: got %v, want Invalid", all, err)
		}
	}
	if err := Check([]Secret{one, parse("OTHER@a.example.com")}); err != nil {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	var limits []allowlist.Limit
	for _, text := range []string{"A=POST /v1/messages", "A=GET,HEAD /v1/models/*", "A=* /files/**"} {
		name, l, err := ParseLimit(text)
		if err != nil || name+"="+l.String() != text {
			t.Fatalf("%s: got %s %s, %v", text, name, l, err)
		}
		limits = append(limits, l)
	}
	for request, want := range map[string]bool{
		"POST /v1/messages":           true,
		"POST /v1/messages?beta=true": true,
		"GET /v1/messages":            false,
		"POST /v1/messages/":          false,
		"POST /v1/messages/batches":   false,
		"GET /v1/models/one":          true,
		"HEAD /v1/models/one":         true,
		"GET /v1/models/one/more":     false,
		"GET /v1/models/":             true,
		"DELETE /files/a/b":           true,
		"DELETE /files":               true,
		"GET /files/../v1/messages":   false,
		"GET /files/./a":              false,
		"GET /files//a":               false,
		"GET /files/%2e%2e/a":         false,
		"GET /files/a%2fb":            false,
		"GET /files/a;x=1":            false,
		`GET /files/..\v1`:            false,
		"GET /v1/models/a%20b":        false,
	} {
		method, target, _ := strings.Cut(request, " ")
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Fatal(err)
		}
		if got := allowlist.Allows(limits, method, u); got != want {
			t.Errorf("%s: allowed %t, want %t", request, got, want)
		}
	}
	for _, text := range []string{"", "A", "A=", "A=POST", "A=POST v1", "A=post /v1", "A=POST, /v1", "=POST /v1", "A=POST /v1/[", "A=POST /v1?x", "A=GET /**/a/**/b/**"} {
		if _, _, err := ParseLimit(text); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: got %v, want Invalid", text, err)
		}
	}
}

func TestPlaceholdersHaveTheFormOfTheValue(t *testing.T) {
	for value, want := range map[string]struct {
		prefix string
		size   int
	}{
		"sk-ant-api03-" + strings.Repeat("x", 95): {"sk-ant-api03-", 108},
		"ghp_" + strings.Repeat("x", 36):          {"ghp_", 40},
		"ghp_short":                               {"ghp_", 4 + minLetters},
		"passw0rd":                                {"", 32},
		"a password of some length":               {"", 32},
		strings.Repeat("ab", 32):                  {"", 64},
		strings.Repeat("z", maxValue):             {"", maxPlaceholder},
	} {
		p := NewPlaceholder(value)
		if !strings.HasPrefix(p, want.prefix) || len(p) != want.size || p == NewPlaceholder(value) || strings.Contains(p, value) {
			t.Errorf("%.20s: got %s of %d bytes, want %s… of %d", value, p, len(p), want.prefix, want.size)
		}
		if err := CheckValue("A", p); err != nil {
			t.Error(err)
		}
	}
}

func TestValuesThatCannotBeSent(t *testing.T) {
	for name, value := range map[string]string{
		"empty": "", "short": "1234567", "long": strings.Repeat("x", maxValue+1),
		"a line break": "12345678\n9", "a space": "1234 5678", "not ASCII": "12345678ü", "a zero byte": "12345678\x00",
	} {
		err := CheckValue("API_KEY", value)
		if !errdefs.Is(err, errdefs.Invalid) || value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// However a text is cut into reads, the values in it are masked and all else stays.
func TestMasksDoNotDependOnReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`[ab]{8,12}`), 1, 3).Draw(t, "values")
		m := NewMasker(values...)
		text := rapid.StringMatching(`[abc]{0,200}`).Draw(t, "text")
		want := []byte(text)
		m.Mask(want)
		for _, v := range values {
			if bytes.Contains(want, []byte(v)) {
				t.Fatalf("%s is in %s", v, want)
			}
		}
		var r io.Reader = strings.NewReader(text)
		if rapid.Bool().Draw(t, "slow") {
			r = iotest.OneByteReader(r)
		} else {
			r = iotest.HalfReader(r)
		}
		got, err := io.ReadAll(m.Reader(r))
		if err != nil || len(got) != len(text) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(text), err)
		}
		for _, v := range values {
			if bytes.Contains(got, []byte(v)) {
				t.Fatalf("%s is in %s", v, got)
			}
		}
	})
}

// What cannot be the beginning of a value is passed on at once, as a stream of events needs it.
func TestAStreamIsNotHeldUp(t *testing.T) {
	r, w := io.Pipe()
	masked := NewMasker("secret-value").Reader(r)
	go func() {
		for _, part := range []string{"data: 1\n\n", "data: secret-", "value\n\n"} {
			_, _ = io.WriteString(w, part)
		}
		w.Close()
	}()
	b := make([]byte, 100)
	n, err := masked.Read(b)
	if err != nil || string(b[:n]) != "data: 1\n\n" {
		t.Fatalf("got %q, %v", b[:n], err)
	}
	rest, err := io.ReadAll(masked)
	if err != nil || string(rest) != "data: ************\n\n" {
		t.Fatalf("got %q, %v", rest, err)
	}
}

// A connection that breaks off in the middle of a value has not told its beginning.
func TestABrokenStreamTellsNothing(t *testing.T) {
	r := NewMasker("secret-value").Reader(io.MultiReader(strings.NewReader("x secret-va"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	got, err := io.ReadAll(r)
	if string(got) != "x " || err == nil {
		t.Errorf("got %q, %v", got, err)
	}
}

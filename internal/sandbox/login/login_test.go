package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// provider answers each request with the next token, and counts them.
type provider struct {
	asked  atomic.Int32
	status int
	before func() // is called while it is asked
	fields map[string]string
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := p.asked.Add(1)
	p.fields = nil
	_ = json.NewDecoder(r.Body).Decode(&p.fields) // the test looks at them
	if p.before != nil {
		p.before()
	}
	if p.status != 0 {
		w.Header().Set("Location", "https://example.com/")
		w.WriteHeader(p.status)
		fmt.Fprint(w, `{"error": "invalid_grant"}`)
		return
	}
	fmt.Fprintf(w, `{"access_token": "token-%d", "refresh_token": "refresh-%d", "expires_in": 3600}`, n, n)
}

// file is a login that expires then.
func file(expires time.Time) string {
	return fmt.Sprintf("{\n  \"o\": {\"token\": \"token-0\", \"refresh\": \"refresh-0\", \"at\": %d, \"scopes\": [\"a\", \"b\"], \"plan\": \"max\"},\n  \"other\": 1.0\n}\n", expires.UnixMilli())
}

// newLogin makes a home directory with a login of a provider.
func newLogin(t *testing.T, p http.Handler, content string) *Login {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".x"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := In(home, Spec{
		File: ".x/auth.json", Secret: "TOKEN", Token: "o.token", Set: []Variable{{"SCOPES", "o.scopes"}, {"PLAN", "o.plan"}, {"NONE", "o.none"}},
		Renew: Renewal{
			URL: server.URL + "/token", Client: "id", ClientKey: "o.client", Refresh: "o.refresh", Expires: "o.at", Scope: "o.scopes",
			Locks: []string{".x/a.lock", ".x.lock"}, WriteLock: ".x/w.lock",
		},
	})
	write(t, l, content)
	return l
}

func write(t *testing.T, l *Login, content string) {
	t.Helper()
	if err := os.WriteFile(l.Path(), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, l *Login) string {
	t.Helper()
	text, err := os.ReadFile(l.Path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// wantClean checks that nothing is left beside the file, but for what is named.
func wantClean(t *testing.T, l *Login, names ...string) {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(l.home, ".x*", "*"))
	more, _ := filepath.Glob(filepath.Join(l.home, ".x", ".*"))
	locks, _ := filepath.Glob(filepath.Join(l.home, "*.lock"))
	var got []string
	for _, path := range slices.Concat(found, more, locks) {
		got = append(got, filepath.Base(path))
	}
	if !slices.Equal(got, names) {
		t.Errorf("left: %q, want %q", got, names)
	}
}

func TestALoginIsRenewedAndNothingElseOfItsFileChanges(t *testing.T) {
	p := &provider{}
	l := newLogin(t, p, file(time.Now().Add(time.Minute)))
	s, err := l.Renew(t.Context())
	if err != nil || !s.HasToken || s.IsDue(time.Now()) || s.Expires.Before(time.Now().Add(50*time.Minute)) {
		t.Fatalf("%+v, %v", s, err)
	}
	want := map[string]string{"grant_type": "refresh_token", "refresh_token": "refresh-0", "client_id": "id", "scope": "a b"}
	if !maps.Equal(p.fields, want) {
		t.Errorf("asked %v, want %v", p.fields, want)
	}
	expected := strings.NewReplacer("token-0", "token-1", "refresh-0", "refresh-1").Replace(file(s.Expires))
	if got := read(t, l); got != expected {
		t.Errorf("the file:\n%s\nwant:\n%s", got, expected)
	}
	if info, err := os.Stat(l.Path()); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	wantClean(t, l, "auth.json")

	// The next one finds it done.
	if now, err := l.Renew(t.Context()); err != nil || now != s || p.asked.Load() != 1 {
		t.Errorf("again: %+v, %v; asked %d times", now, err, p.asked.Load())
	}
}

// Many at once, and one of them asks.
func TestALoginIsRenewedOnce(t *testing.T) {
	p := &provider{}
	l := newLogin(t, p, file(time.Now().Add(-time.Hour)))
	errs := make(chan error)
	for range 8 {
		go func() {
			_, err := l.Renew(t.Context())
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if p.asked.Load() != 1 || !strings.Contains(read(t, l), "refresh-1") {
		t.Errorf("asked %d times: %s", p.asked.Load(), read(t, l))
	}
	wantClean(t, l, "auth.json")
}

// What other programs do to the file while the provider is asked.
func TestARenewalOverwritesNoOtherLogin(t *testing.T) {
	old := file(time.Now().Add(-time.Hour))
	for name, test := range map[string]struct {
		before func(t *testing.T, l *Login)
		want   []string
	}{
		"another key":   {func(t *testing.T, l *Login) { write(t, l, strings.Replace(old, "1.0", "2", 1)) }, []string{"token-1", "refresh-1", `"other": 2`}},
		"another login": {func(t *testing.T, l *Login) { write(t, l, strings.Replace(old, "refresh-0", "refresh-of-another", 1)) }, []string{"token-0", "refresh-of-another"}},
		"no login":      {func(t *testing.T, l *Login) { write(t, l, `{"o": {}}`) }, []string{`{"o": {}}`}},
		"no file": {func(t *testing.T, l *Login) {
			if err := os.Remove(l.Path()); err != nil {
				t.Error(err)
			}
		}, []string{""}},
		"damaged": {func(t *testing.T, l *Login) { write(t, l, "{") }, []string{"token-1", "refresh-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{}
			l := newLogin(t, p, old)
			p.before = func() { test.before(t, l) }
			if _, err := l.Renew(t.Context()); err != nil {
				t.Error(err)
			}
			for _, part := range test.want {
				if got := read(t, l); !strings.Contains(got, part) {
					t.Errorf("the file has no %q: %s", part, got)
				}
			}
		})
	}
}

func TestWhatCannotBeRenewedStays(t *testing.T) {
	due := file(time.Now().Add(-time.Hour))
	for name, test := range map[string]struct {
		content string
		status  int
		kind    errdefs.Kind
		says    string
		asked   int32
	}{
		"refused":         {due, http.StatusBadRequest, errdefs.Denied, "400 (invalid_grant)", 1},
		"a redirect":      {due, http.StatusTemporaryRedirect, errdefs.Unavailable, "307", 1},
		"too many":        {due, http.StatusTooManyRequests, errdefs.Unavailable, "429", 1},
		"no second token": {strings.Replace(due, "refresh-0", "", 1), 0, errdefs.Invalid, "no token to renew it with", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{status: test.status}
			l := newLogin(t, p, test.content)
			_, err := l.Renew(t.Context())
			if !errdefs.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "-0") {
				t.Errorf("%v, want kind %v and %q", err, test.kind, test.says)
			}
			if read(t, l) != test.content || p.asked.Load() != test.asked {
				t.Errorf("asked %d times; the file: %s", p.asked.Load(), read(t, l))
			}
			wantClean(t, l, "auth.json")
		})
	}
}

// Where the file cannot be replaced, the provider is not asked: it would take the old token away.
func TestTheProviderIsNotAskedWithoutAPlaceForItsAnswer(t *testing.T) {
	p := &provider{}
	l := newLogin(t, p, file(time.Now().Add(-time.Hour)))
	if err := os.RemoveAll(filepath.Join(l.home, ".x")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.exchange(t.Context(), []byte(file(time.Now())), State{}); !errdefs.Is(err, errdefs.Unavailable) || p.asked.Load() != 0 {
		t.Errorf("%v; asked %d times", err, p.asked.Load())
	}
}

func TestALockOfAnotherProgramIsWaitedFor(t *testing.T) {
	p := &provider{}
	l := newLogin(t, p, file(time.Now().Add(-time.Hour)))
	held := filepath.Join(l.home, ".x.lock")
	if err := os.Mkdir(held, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*pause)
	defer cancel()
	if _, err := l.Renew(ctx); !errdefs.Is(err, errdefs.Unavailable) || p.asked.Load() != 0 {
		t.Errorf("while it is held: %v; asked %d times", err, p.asked.Load())
	}
	wantClean(t, l, "auth.json", ".x.lock")

	// One that was left by a program that has ended is taken over.
	long := time.Now().Add(-2 * stale)
	if err := os.Chtimes(held, long, long); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(t.Context()); err != nil || p.asked.Load() != 1 {
		t.Errorf("a stale lock: %v; asked %d times", err, p.asked.Load())
	}
	wantClean(t, l, "auth.json")
}

func TestWhatAFileSaysOfALogin(t *testing.T) {
	l := newLogin(t, &provider{}, file(time.UnixMilli(1000)))
	s, err := l.State()
	if err != nil || !s.HasToken || !s.Expires.Equal(time.UnixMilli(1000)) || !s.IsDue(time.Now()) || s.IsDue(time.UnixMilli(1000).Add(-margin-1)) {
		t.Errorf("%+v, %v", s, err)
	}
	if got, want := l.Variables(), []string{"SCOPES=a b", "PLAN=max"}; !slices.Equal(got, want) {
		t.Errorf("variables %q, want %q", got, want)
	}
	if got, want := l.Source(), "json:o.token:"+l.home+"/.x/auth.json"; got != want {
		t.Errorf("source %s, want %s", got, want)
	}
	for _, content := range []string{"", "{", "[]", `{"o": 1}`, `{"o": {"token": ""}}`, `{"o": {"token": 1}}`, `{"o": {"token": "a", "token": "b"}}`} {
		write(t, l, content)
		if s, err := l.State(); err != nil || s.HasToken || s.IsDue(time.Now()) {
			t.Errorf("%s: %+v, %v", content, s, err)
		}
	}
	if err := os.Remove(l.Path()); err != nil {
		t.Fatal(err)
	}
	if s, err := l.State(); err != nil || s != (State{}) {
		t.Errorf("no file: %+v, %v", s, err)
	}
	if err := os.Symlink("/etc/passwd", l.Path()); err != nil {
		t.Fatal(err)
	}
	if s, err := l.State(); err == nil || s.HasToken {
		t.Errorf("a link: %+v, %v", s, err)
	}
}

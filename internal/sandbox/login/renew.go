package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// How long a renewal may take.
const (
	lockPatience    = 30 * time.Second
	requestPatience = 30 * time.Second
	maxAnswer       = 1 << 20
)

// Renew renews a login whose token is due, unless another program has done so. It can be cut short
// only until the provider is asked. Errors: Unavailable, if the provider or the file cannot be
// reached; Denied, if the provider refuses; Invalid for what cannot be renewed. None tells a token.
func (l *Login) Renew(ctx context.Context) (State, error) {
	state, err := l.renew(ctx)
	if err != nil {
		return state, errdefs.New(errdefs.KindOf(err), "renew the login in %s: %w", vpath.Escape(l.Path()), err)
	}
	return state, nil
}

func (l *Login) renew(ctx context.Context) (s State, err error) {
	locks := make([]string, len(l.spec.Renew.Locks))
	for i, name := range l.spec.Renew.Locks {
		locks[i] = filepath.Join(l.home, name)
	}
	waiting, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	release, err := acquireAll(waiting, locks...)
	if err != nil {
		return State{}, errdefs.New(errdefs.Unavailable, "%w", err)
	}
	defer func() { err = errors.Join(err, release()) }()
	document, err := l.read()
	if err != nil {
		return State{}, errdefs.New(errdefs.Unavailable, "%w", err)
	}
	if s = l.stateOf(document); !s.IsDue(time.Now()) {
		return s, nil // another program has renewed it
	}
	return l.exchange(context.WithoutCancel(ctx), document, s)
}

// exchange asks the provider, and stores what it answers. From the request on, the old token may be
// worth nothing: so there is a place for the new one before.
func (l *Login) exchange(ctx context.Context, document []byte, was State) (State, error) {
	request, err := l.request(document)
	if err != nil {
		return was, err
	}
	place, err := reserve(l.Path(), len(document)+maxGrowth)
	if err != nil {
		return was, errdefs.New(errdefs.Unavailable, "%w", err)
	}
	defer place.drop()
	a, err := ask(ctx, l.spec.Renew.URL, request)
	if err != nil {
		return was, err
	}
	settings := a.settings(l.spec, time.Now())
	release := func() error { return nil }
	if l.spec.Renew.WriteLock != "" {
		waiting, cancel := context.WithTimeout(ctx, lockPatience)
		defer cancel()
		if taken, err := acquireAll(waiting, filepath.Join(l.home, l.spec.Renew.WriteLock)); err == nil {
			release = taken
		} // who holds it so long has ended, and a token that is not stored is lost
	}
	s, err := l.store(place, document, settings)
	if err = errors.Join(err, release()); err != nil {
		return was, errdefs.New(errdefs.Unavailable, "the provider has issued a token, and it could not be stored: log in anew: %w", err)
	}
	return s, nil
}

// store puts what the provider has issued into the file, unless another login is there by now.
// Other keys may have changed since document was read.
func (l *Login) store(place *place, document []byte, settings []jsonkeys.Setting) (State, error) {
	now, err := l.read()
	switch {
	case errors.Is(err, fs.ErrNotExist): // somebody has logged out
		return State{}, nil
	case err != nil:
		now = document
	default:
		used, _ := text(document, l.spec.Renew.Refresh)
		is, err := text(now, l.spec.Renew.Refresh)
		switch {
		case err != nil: // it is damaged, and the login was in it
			now = document
		case is != used:
			return l.stateOf(now), nil
		}
	}
	changed, err := jsonkeys.Set(now, settings...)
	if err == nil {
		err = place.commit(changed)
	}
	return l.stateOf(changed), err
}

// maxGrowth is how much longer a file may become by a renewal.
const maxGrowth = 64 << 10

// request is what the provider is asked, as JSON (RFC 6749, section 6, which has a form).
func (l *Login) request(document []byte) ([]byte, error) {
	r := l.spec.Renew
	refresh, err := text(document, r.Refresh)
	if err != nil {
		return nil, err
	}
	if refresh == "" {
		return nil, errdefs.New(errdefs.Invalid, "the file has no token to renew it with")
	}
	fields := map[string]string{"grant_type": "refresh_token", "refresh_token": refresh, "client_id": r.Client}
	if r.ClientKey != "" {
		if client, err := text(document, r.ClientKey); err == nil && client != "" {
			fields["client_id"] = client
		}
	}
	if r.Scope != "" {
		if scope, err := text(document, r.Scope); err == nil && scope != "" {
			fields["scope"] = scope
		}
	}
	return json.Marshal(fields)
}

// answer is what the provider issues (RFC 6749, section 5.1).
type answer struct {
	Token     string `json:"access_token"`
	Refresh   string `json:"refresh_token"` // "": the old one stays
	ExpiresIn int64  `json:"expires_in"`    // seconds
}

// settings are the values of the file.
func (a answer) settings(spec Spec, now time.Time) []jsonkeys.Setting {
	quoted := func(s string) json.RawMessage {
		text, _ := json.Marshal(s) // of a string
		return text
	}
	list := []jsonkeys.Setting{{Key: spec.Token, Value: quoted(a.Token)}}
	if a.Refresh != "" {
		list = append(list, jsonkeys.Setting{Key: spec.Renew.Refresh, Value: quoted(a.Refresh)})
	}
	expires := now.Add(time.Duration(a.ExpiresIn) * time.Second).UnixMilli()
	return append(list, jsonkeys.Setting{Key: spec.Renew.Expires, Value: fmt.Appendf(nil, "%d", expires)})
}

// client follows no redirect: it would take the token elsewhere.
var client = &http.Client{
	Timeout:       requestPatience,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// ask sends a request to the provider. Errors do not quote what is sent or answered, but for the
// code of an error.
func ask(ctx context.Context, url string, request []byte) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
	if err != nil {
		return answer{}, errdefs.New(errdefs.Invalid, "%w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return answer{}, errdefs.New(errdefs.Unavailable, "%w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, errdefs.New(errdefs.Unavailable, "%w", err)
	}
	if response.StatusCode != http.StatusOK {
		kind := errdefs.Unavailable
		if response.StatusCode >= 400 && response.StatusCode < 500 && response.StatusCode != http.StatusTooManyRequests {
			kind = errdefs.Denied
		}
		return answer{}, errdefs.New(kind, "%s answers %d%s", url, response.StatusCode, codeOf(body))
	}
	var a answer
	if json.Unmarshal(body, &a) != nil || a.Token == "" || a.ExpiresIn <= 0 {
		return answer{}, errdefs.New(errdefs.Unavailable, "%s gives no token", url)
	}
	return a, nil
}

// codeOf returns the code of an error (RFC 6749, section 5.2), for people; "" if there is none.
func codeOf(body []byte) string {
	var e struct {
		Error string `json:"error"`
	}
	const maxCode = 40
	odd := func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }
	if json.Unmarshal(body, &e) != nil || e.Error == "" || len(e.Error) > maxCode || strings.ContainsFunc(e.Error, odd) {
		return ""
	}
	return " (" + e.Error + ")"
}

// Package login reads and renews the login of a coding agent: a token in a JSON file of the user,
// which the agent's host gets, and another one by which the provider issues the next.
//
// A sandbox has a placeholder of the first and never sees the second. So whoever runs the agent
// renews the login outside, as the agent itself would: under the locks that the agent takes, with
// one request to the provider, and into the same file. The file is whole at each moment, and what
// the provider has issued is on the disk before anything else happens.
package login

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Spec says where a login is. Keys are those of package jsonkeys.
type Spec struct {
	File string // from the home directory
	// Secret is the name of the secret that has the token; "": the login is readable inside.
	Secret string
	Token  string     // its key
	Set    []Variable // that tell the agent more of its login
	Renew  Renewal
}

// Variable is a variable that has the value of a key: a text, or the texts of a list.
type Variable struct{ Name, Key string }

// Renewal says how a login is renewed; without a URL it is not.
type Renewal struct {
	URL       string // of the provider
	Client    string // by which the agent is known to the provider
	ClientKey string // of another one, if the file has it
	Refresh   string // the key of the token that renews
	Expires   string // the key of the time at which the token expires, in milliseconds
	Scope     string // the key of what it permits, "" for none
	// Locks are directories that the agent makes while it renews the login, and WriteLock is one
	// that it makes while it writes the file, all from the home directory.
	Locks     []string
	WriteLock string
}

// margin is how long before its end a token is renewed: as long as agents wait at most.
const margin = 5 * time.Minute

// State is what a login file says. States of the same token are equal.
type State struct {
	HasToken bool
	Expires  time.Time // zero: it does not, or the file does not tell
	token    [sha256.Size]byte
}

// IsDue reports whether the token is to be renewed.
func (s State) IsDue(now time.Time) bool {
	return !s.Expires.IsZero() && !now.Add(margin).Before(s.Expires)
}

// Login is a login in a home directory.
type Login struct {
	spec Spec
	home string
}

// In returns the login in a home directory.
func In(home string, spec Spec) *Login { return &Login{spec, home} }

// Path is where the file is.
func (l *Login) Path() string { return filepath.Join(l.home, l.spec.File) }

// Source is the login's token as a source of a secret.
func (l *Login) Source() string { return "json:" + l.spec.Token + ":" + l.Path() }

// State reads the file. A file that is absent, no regular file or not of the form that is known has
// no token. Errors: those of reading.
func (l *Login) State() (State, error) {
	document, err := l.read()
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	return l.stateOf(document), nil
}

func (l *Login) stateOf(document []byte) State {
	var s State
	token, _ := text(document, l.spec.Token) // a damaged file has none
	s.HasToken, s.token = token != "", sha256.Sum256([]byte(token))
	var ms int64
	if l.spec.Renew.Expires != "" {
		if v, err := jsonkeys.Get(document, l.spec.Renew.Expires); err == nil && v != nil && json.Unmarshal(v, &ms) == nil {
			s.Expires = time.UnixMilli(ms)
		}
	}
	return s
}

// maxFile bounds a file of logins.
const maxFile = 1 << 20

func (l *Login) read() ([]byte, error) { return safefs.ReadRegularIn(l.home, l.spec.File, maxFile) }

// Variables are those that tell the agent more of its login, as NAME=VALUE.
func (l *Login) Variables() []string {
	document, err := l.read()
	if err != nil {
		return nil
	}
	var list []string
	for _, v := range l.spec.Set {
		if value, err := text(document, v.Key); err == nil && value != "" {
			list = append(list, v.Name+"="+value)
		}
	}
	return list
}

// text returns the text of a key, or those of a list with spaces between them; "" if there is none.
func text(document []byte, key string) (string, error) {
	v, err := jsonkeys.Get(document, key)
	if err != nil || v == nil {
		return "", err
	}
	var one string
	var list []string
	switch {
	case json.Unmarshal(v, &one) == nil:
		list = []string{one}
	case json.Unmarshal(v, &list) != nil:
		return "", errdefs.New(errdefs.Invalid, "key %s: want a text, or a list of texts", vpath.Quote(key))
	}
	one = strings.Join(list, " ")
	if strings.Contains(one, "\x00") {
		return "", errdefs.New(errdefs.Invalid, "key %s: NUL bytes are not allowed", vpath.Quote(key))
	}
	return one, nil
}

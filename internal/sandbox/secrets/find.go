package secrets

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Finder finds values. It may be used concurrently.
type Finder struct {
	// Getenv looks up a variable of the caller.
	Getenv func(string) string

	mu     sync.Mutex // taken alone
	values map[secret.Source]string
}

// value finds the value of a secret, and remembers it for this process unless it changes. Errors:
// Invalid, which does not tell the value.
func (f *Finder) value(ctx context.Context, s secret.Secret) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v, known := f.values[s.Source]; known && !s.Source.Changes() {
		return v, nil
	}
	v, err := f.lookUp(ctx, s)
	if err == nil {
		err = secret.CheckValue(s.Name, v)
	}
	if err != nil {
		return "", err
	}
	if f.values == nil {
		f.values = map[secret.Source]string{}
	}
	f.values[s.Source] = v
	return v, nil
}

// maxSecretFile is more than any value has.
const maxSecretFile = 64 << 10

// lookUp reads the source of a secret. A line break at the end is not part of the value.
func (f *Finder) lookUp(ctx context.Context, s secret.Secret) (string, error) {
	var text []byte
	var err error
	switch s.Source.Kind {
	case secret.FromFile:
		text, err = safefs.ReadNamed(s.Source.Text, maxSecretFile)
	case secret.FromJSON:
		text, err = lookUpJSON(s.Source)
	case secret.FromCommand:
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", s.Source.Text)
		cmd.Stderr = os.Stderr
		text, err = cmd.Output()
	default:
		v := f.Getenv(s.Source.Text)
		if v == "" {
			err = errdefs.New(errdefs.Invalid, "the variable %s is not set", s.Source.Text)
		}
		text = []byte(v)
	}
	if err != nil {
		return "", errdefs.New(errdefs.Invalid, "secret %s: %s: %w", s.Name, vpath.Quote(s.Source.String()), err)
	}
	return strings.TrimRight(string(bytes.TrimRight(text, "\n")), "\r"), nil
}

// lookUpJSON reads a text of a JSON file.
func lookUpJSON(s secret.Source) ([]byte, error) {
	path, key := s.File()
	document, err := safefs.ReadNamed(path, maxJSONFile)
	if err != nil {
		return nil, err
	}
	value, err := jsonkeys.Get(document, key)
	if err != nil {
		return nil, err
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return nil, errdefs.New(errdefs.Invalid, "the file has no text %s", vpath.Quote(key))
	}
	return []byte(text), nil
}

// maxJSONFile is more than a file of logins has.
const maxJSONFile = 1 << 20

// Complete returns secrets with their placeholders, as a record has them. One that was given out
// stays. Errors: Invalid.
func (f *Finder) Complete(ctx context.Context, given, before []hostlist.Secret) ([]hostlist.Secret, error) {
	all, err := parse(given)
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	for _, stored := range before {
		if s, err := secret.Parse(stored.Text); err == nil {
			known[s.Name] = stored.Placeholder
		}
	}
	list := slices.Clone(given)
	for i, s := range all {
		value, err := f.value(ctx, s)
		if err != nil {
			return nil, err
		}
		list[i].Placeholder = cmp.Or(known[s.Name], secret.NewPlaceholder(value))
	}
	return list, nil
}

// Certificates opens the file of the certificates that this host trusts, or that SSL_CERT_FILE
// names. Errors: Unsupported.
func Certificates(getenv func(string) string) (*os.File, error) {
	places := isolate.Bundles
	if named := getenv("SSL_CERT_FILE"); named != "" {
		places = []string{named}
	}
	var err error
	for _, path := range places {
		var f *os.File
		if f, err = os.Open(path); err == nil {
			return f, nil
		}
	}
	return nil, errdefs.New(errdefs.Unsupported, "no certificates to verify a host by: %w; install ca-certificates, or set SSL_CERT_FILE", err)
}

// Give hands the values of the secrets over to a live sandbox whose network lacks them, or may have
// an old one, and warns of those that cannot be found.
func (f *Finder) Give(ctx context.Context, client *api.Client, r *record.Record, warn func(error)) error {
	all, err := Of(r)
	if err != nil || len(all) == 0 {
		return err
	}
	changes := slices.ContainsFunc(all, func(s secret.Secret) bool { return s.Source.Changes() })
	if has, err := client.HasSecrets(ctx); err != nil || has && !changes {
		return err
	}
	values := map[string]string{}
	for _, s := range all {
		v, err := f.value(ctx, s)
		if err != nil {
			warn(errdefs.New(errdefs.Invalid, "%w; requests that need it are refused", err))
			continue
		}
		values[s.Name] = v
	}
	if len(values) == 0 {
		return nil
	}
	certificates, err := Certificates(f.Getenv)
	if err != nil {
		return err
	}
	defer certificates.Close()
	return handOver(ctx, client, values, certificates)
}

// Patience with a process that is just starting.
const (
	givePatience = 20 * time.Second
	givePause    = 10 * time.Millisecond
)

// handOver passes values on, as soon as there is somebody to take them.
func handOver(ctx context.Context, client *api.Client, values map[string]string, certificates *os.File) error {
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(givePatience)
	for {
		err := handOverOnce(ctx, client, text, certificates)
		if !errdefs.Is(err, errdefs.Unavailable) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return errdefs.New(errdefs.Canceled, "hand over secrets: %w", ctx.Err())
		case <-time.After(givePause):
		}
	}
}

func handOverOnce(ctx context.Context, client *api.Client, text []byte, certificates *os.File) error {
	r, w, err := os.Pipe()
	if err != nil {
		return errdefs.New(errdefs.Exhausted, "hand over secrets: %w", err)
	}
	defer r.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer w.Close()
		_, _ = w.Write(text) // who does not read all of it says so
	}()
	if _, err = certificates.Seek(0, 0); err == nil {
		err = client.GiveSecrets(ctx, r, certificates)
	}
	r.Close()
	<-written
	return err
}

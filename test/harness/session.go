package harness

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Client speaks with the sandbox's supervisor, as a server does. The sandbox
// must run.
func (s *Sandbox) Client() *api.Client {
	s.t.Helper()
	client, err := api.Dial(context.Background(), filepath.Join(s.Home, "sandboxes", s.Name))
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// Session is a session of a sandbox.
type Session struct {
	ID     string
	client *api.Client
	s      *Sandbox
}

// SessionEnv is what a session's shell has in its environment.
var SessionEnv = []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}

// OpenSession opens a session; the options' id and environment are made up if
// they are empty.
func (s *Sandbox) OpenSession(client *api.Client, o api.SessionOptions) *Session {
	s.t.Helper()
	if o.ID == "" {
		o.ID = NewSessionID()
	}
	if o.Env == nil {
		o.Env = SessionEnv
	}
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	if _, err := client.OpenSession(ctx, o); err != nil {
		s.t.Fatal(err)
	}
	return &Session{ID: o.ID, client: client, s: s}
}

// NewSessionID makes an id up.
func NewSessionID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return "sess_" + hex.EncodeToString(b[:])
}

// Output is what a command of a session wrote, and how it ended.
type Output struct {
	Stdout, Stderr string
	Exit           api.Exit
	Err            error
}

// Start runs a command. Its output comes when it has ended and ends where
// nothing came for a while: background processes may hold the pipes.
func (x *Session) Start(ctx context.Context, text string, timeout time.Duration) <-chan Output {
	var ends [2]*os.File // the command's
	var texts [2]bytes.Buffer
	var copies [2]*api.Output
	for i := range ends {
		r, w, err := os.Pipe()
		if err != nil {
			x.s.t.Error(err)
			return nil
		}
		if x.s.user != nil {
			if err := w.Chown(int(x.s.user.Uid), int(x.s.user.Gid)); err != nil {
				x.s.t.Error(err)
			}
		}
		ends[i], copies[i] = w, api.CopyOutput(&texts[i], r)
	}
	result := make(chan Output, 1)
	go func() {
		var out Output
		out.Exit, out.Err = x.client.SessionExec(ctx, x.ID, api.SessionCommand{Text: text, Timeout: timeout}, ends[0], ends[1])
		for i, c := range copies {
			ends[i].Close()
			c.Finish()
			c.From.Close()
		}
		out.Stdout, out.Stderr = texts[0].String(), texts[1].String()
		result <- out
	}()
	return result
}

// Run runs a command to its end.
func (x *Session) Run(text string) Output {
	x.s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	return <-x.Start(ctx, text, 0)
}

// Prints runs a command, which must succeed, and compares what it prints.
func (x *Session) Prints(text, want string) {
	x.s.t.Helper()
	got := x.Run(text)
	if got.Err != nil || got.Exit.Code != 0 || got.Exit.Signal != 0 || got.Stdout != want || got.Stderr != "" {
		x.s.t.Errorf("%s\ngot %+v, want %q", text, got, want)
	}
}

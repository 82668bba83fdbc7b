package client

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// FromLocal makes a running sandbox of a directory of this host, with a client of
// its own. Close ends and removes all of that.
//
// On this user's own server the directory is linked, whatever its size: the
// sandbox sees it as the command line's does, at its own path, to which /workspace
// leads, and only Apply changes it. On any other server, with WithIgnorePatterns, and, with a
// warning to slog, where the token may not link (one that has an owner), it is uploaded, but for
// what the default patterns, .gitignore and .sandboxignore leave out, and what the sandbox changes
// waits for Apply, which brings it back into the directory. After an error, and when ctx ends
// before FromLocal has returned, nothing stays.
//
// Errors: ErrNotFound and ErrInvalid for what is no directory; those of New,
// LinkCodebase, UploadTree and CreateSandbox.
func FromLocal(ctx context.Context, dir string, options ...LocalOption) (*Sandbox, error) {
	o := collect(options)
	path, err := directory(dir)
	if err != nil {
		return nil, err
	}
	o.dir = path
	if _, err := o.request(""); err != nil { // nothing is made for what cannot be
		return nil, err
	}
	c, err := newClient(ctx, o)
	if err != nil {
		return nil, err
	}
	s, err := c.fromLocal(ctx, path, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.ownsClient = true
	return s, nil
}

// directory is the absolute path of a directory of this host.
func directory(dir string) (string, error) {
	if dir == "" {
		return "", failure("directory", "none is named", ErrInvalid)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", invalid("directory", err)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", failure("directory", err.Error(), ErrNotFound, err)
	case err != nil:
		return "", invalid("directory", err)
	case !info.IsDir():
		return "", invalid("directory", errors.New(path+": not a directory"))
	}
	return path, nil
}

func (c *Client) fromLocal(ctx context.Context, path string, o *settings) (*Sandbox, error) {
	base, err := c.bring(ctx, path, o)
	if err != nil {
		return nil, err
	}
	if !base.Linked && o.sync == "" {
		o.sync = SyncManual
	}
	o.atHostPath = base.Linked
	s, err := c.createSandbox(ctx, base.ID, o)
	if err != nil {
		return nil, c.without(ctx, base.ID, err)
	}
	s.codebaseID = base.ID
	if !base.Linked {
		s.noteUpload(ctx, path, base, o)
	}
	return s, nil
}

// noteUpload remembers what was uploaded, for Apply. Where that cannot be, Apply says
// why; all else works.
func (s *Sandbox) noteUpload(ctx context.Context, path string, base brought, o *settings) {
	s.unnoted = base.unnoted
	if s.unnoted == nil {
		rules, err := o.given()
		if err == nil {
			err = base.note.remember(s.ID, base.ID, rules)
		}
		s.unnoted = err
	}
	if s.unnoted != nil {
		slog.WarnContext(ctx, "agentfense: Apply will not bring changes back into the directory: "+s.unnoted.Error(), "directory", path)
	}
}

// brought is the codebase of a directory.
type brought struct {
	Codebase
	note    *noted // what was uploaded
	unnoted error  // why that was not noted
}

// without removes a codebase that is not to stay because of err, which it
// returns.
func (c *Client) without(ctx context.Context, codebaseID string, err error) error {
	return errors.Join(err, c.undo(ctx, func(ctx context.Context, c *Client) error { return c.DeleteCodebase(ctx, codebaseID) }))
}

// bring makes a codebase of a directory, as FromLocal does.
func (c *Client) bring(ctx context.Context, path string, o *settings) (brought, error) {
	link := c.sameHost && len(o.ignore) == 0
	if o.link != nil {
		link = *o.link
	}
	if link && len(o.ignore) > 0 {
		return brought{}, invalid("link "+path, errors.New("WithIgnorePatterns leaves files out of an upload alone; use .sandboxignore"))
	}
	if link {
		base, err := c.linked(ctx, path, o)
		if err == nil || o.link != nil || !errors.Is(err, ErrDenied) { // a token that has an owner may not link
			return brought{Codebase: base}, err
		}
		slog.WarnContext(ctx, "agentfense: the token may not link the directory, so it is uploaded", "directory", path)
	}
	base := brought{}
	base.note, base.unnoted = noteUpload(path)
	var err error
	if base.Codebase, err = c.CreateCodebase(ctx, vpath.EncodeText(first(o.codebaseName, filepath.Base(path))), o.ownerID); err != nil {
		return base, err
	}
	if _, err := c.uploadTree(ctx, base.ID, path, o.ignore, base.note); err != nil {
		return base, c.without(ctx, base.ID, err)
	}
	return base, nil
}

// FromCodebase makes a running sandbox of a codebase, with a client of its own.
// Close ends and removes both. Errors: those of New and CreateSandbox.
func FromCodebase(ctx context.Context, codebaseID string, options ...FromOption) (*Sandbox, error) {
	o := collect(options)
	c, err := newClient(ctx, o)
	if err != nil {
		return nil, err
	}
	s, err := c.createSandbox(ctx, codebaseID, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.ownsClient = true
	return s, nil
}

// Connect finds a sandbox by its id, with a client of its own. Close ends the
// client; the sandbox stays. Errors: those of New; ErrNotFound.
func Connect(ctx context.Context, sandboxID string, options ...Option) (*Sandbox, error) {
	c, err := New(ctx, options...)
	if err != nil {
		return nil, err
	}
	s, err := c.Sandbox(ctx, sandboxID)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.ownsClient = true
	return s, nil
}

// Close undoes the call that returned s, whatever became of the contexts: a
// sandbox that was made is ended and removed, with every change that was not
// applied, which Lost counts, and so is the codebase that FromLocal made; a client of its own is
// closed. That holds where this user's own server has died, too: the next one is
// started for it. A sandbox that was found stays. A second time does nothing.
func (s *Sandbox) Close() error {
	if !s.made || s.released.Load() {
		return s.release()
	}
	err, rest := s.destroy(context.Background())
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return errors.Join(err, rest)
}

// release closes a client of the sandbox's own.
func (s *Sandbox) release() error {
	if s.ownsClient && s.released.CompareAndSwap(false, true) {
		return s.c.Close()
	}
	return nil
}

// Destroy ends and removes the sandbox, with every change that was not applied,
// and the codebase and the client that FromLocal made. It does so also where ctx
// has ended, and where this user's own server has died. Errors: ErrNotFound.
func (s *Sandbox) Destroy(ctx context.Context) error {
	if s.released.Load() {
		return failure("destroy sandbox", "it is destroyed already", ErrNotFound)
	}
	err, rest := s.destroy(ctx)
	if rest == nil {
		return err
	}
	return errors.Join(err, rest)
}

// destroy tells of the sandbox and of the rest apart.
func (s *Sandbox) destroy(ctx context.Context) (sandbox, rest error) {
	sandbox = s.c.undo(ctx, func(ctx context.Context, c *Client) error {
		lost, err := c.destroy(ctx, s.ID)
		s.lost.Add(lost)
		return err
	})
	isGone := sandbox == nil || errors.Is(sandbox, ErrNotFound)
	// Where it was not noted, the note of that id is another sandbox's.
	if isGone && s.unnoted == nil {
		s.forgetUpload(context.WithoutCancel(ctx))
	}
	if isGone && s.codebaseID != "" {
		rest = s.c.undo(ctx, func(ctx context.Context, c *Client) error { return c.DeleteCodebase(ctx, s.codebaseID) })
		if errors.Is(rest, ErrNotFound) {
			rest = nil
		}
	}
	return sandbox, errors.Join(rest, s.release())
}

// Lost is how many changes Close or Destroy has removed with the sandbox: those that
// were neither applied nor carried over. It is 0 before.
func (s *Sandbox) Lost() int64 { return s.lost.Load() }

func (c *Client) destroy(ctx context.Context, id string) (lost int64, err error) {
	answer, err := c.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id})
	return answer.GetDiscardedCount(), c.fail(ctx, "destroy sandbox", err)
}

// destroyUnused removes a sandbox that nobody is to have. One that somebody has
// used stays.
func (c *Client) destroyUnused(ctx context.Context, id string) error {
	_, err := c.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id, UnusedOnly: true})
	return c.fail(ctx, "destroy sandbox", err)
}

// inWorkspace is a path from the workspace on: "/workspace/x", "/x" and "x" are
// one.
func inWorkspace(path string) string {
	const workspace = "/workspace"
	if path == workspace {
		return ""
	}
	return strings.TrimPrefix(path, workspace+"/")
}

// inside is a path of the workspace as the API has it.
func inside(path string) string { return vpath.EncodeText(inWorkspace(path)) }

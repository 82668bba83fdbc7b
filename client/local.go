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

// FromLocal creates and starts a sandbox from a directory of this host, with its own client. Close
// ends and removes them.
//
// On this user's own server it links the directory, of any size: the sandbox sees it at its path on
// the host, as on the command line, /workspace leads there, and only Apply changes it.
//
// On any other server, with WithIgnorePatterns, and, with a warning to slog, for a token that may
// not link (one with an owner), it uploads the directory, without the files that the default
// patterns, .gitignore and .sandboxignore leave out. The sandbox's changes then wait for Apply,
// which applies them to the directory. After an error, and if ctx ends before FromLocal has
// returned, it removes everything that it created.
//
// Errors: ErrNotFound and ErrInvalid for the directory; those of New, LinkCodebase, UploadTree and
// CreateSandbox.
func FromLocal(ctx context.Context, dir string, options ...LocalOption) (*Sandbox, error) {
	o := collect(options)
	path, err := directory(dir)
	if err != nil {
		return nil, err
	}
	o.dir = path
	if _, err := o.request(""); err != nil { // checked before anything is created
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

// directory returns the absolute path of a directory of this host.
func directory(dir string) (string, error) {
	if dir == "" {
		return "", failure("directory", "no directory given", ErrInvalid)
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

// noteUpload records what was uploaded, for Apply. If that fails, Apply returns the error;
// everything else works.
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
		slog.WarnContext(ctx, "agentfense: Apply cannot apply changes to the directory: "+s.unnoted.Error(), "directory", path)
	}
}

// brought is the codebase of a directory.
type brought struct {
	Codebase
	note    *noted // what was uploaded
	unnoted error  // why that was not recorded
}

// without removes a codebase because of err, which it returns.
func (c *Client) without(ctx context.Context, codebaseID string, err error) error {
	return errors.Join(err, c.undo(ctx, func(ctx context.Context, c *Client) error { return c.DeleteCodebase(ctx, codebaseID) }))
}

// bring creates the codebase of FromLocal.
func (c *Client) bring(ctx context.Context, path string, o *settings) (brought, error) {
	link := c.sameHost && len(o.ignore) == 0
	if o.link != nil {
		link = *o.link
	}
	if link && len(o.ignore) > 0 {
		return brought{}, invalid("link "+path, errors.New("WithIgnorePatterns works only with an upload: use .sandboxignore"))
	}
	if link {
		base, err := c.linked(ctx, path, o)
		if err == nil || o.link != nil || !errors.Is(err, ErrDenied) { // a token with an owner may not link
			return brought{Codebase: base}, err
		}
		slog.WarnContext(ctx, "agentfense: the token may not link the directory: uploading it", "directory", path)
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

// FromCodebase creates and starts a sandbox from a codebase, with its own client. Close ends and
// removes both. Errors: those of New and CreateSandbox.
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

// Connect returns the sandbox with an id, with its own client. Close closes the client; the sandbox
// stays. Errors: those of New; ErrNotFound.
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

// Close undoes the call that returned s, also if contexts have ended. If the call created the
// sandbox, Close ends and removes it, with every change that was not applied (Lost counts them),
// and with the codebase that FromLocal created. It closes the sandbox's own client. If this user's
// own server has died, Close starts another for the removal. A sandbox that was only found stays. A
// second Close does nothing.
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

// release closes the sandbox's own client.
func (s *Sandbox) release() error {
	if s.ownsClient && s.released.CompareAndSwap(false, true) {
		return s.c.Close()
	}
	return nil
}

// Destroy ends and removes the sandbox, with every change that was not applied, and the codebase
// and the client of FromLocal. It works also if ctx has ended, and if this user's own server has
// died. Errors: ErrNotFound.
func (s *Sandbox) Destroy(ctx context.Context) error {
	if s.released.Load() {
		return failure("destroy sandbox", "already destroyed", ErrNotFound)
	}
	err, rest := s.destroy(ctx)
	if rest == nil {
		return err
	}
	return errors.Join(err, rest)
}

// destroy returns the errors of the sandbox and of the rest separately.
func (s *Sandbox) destroy(ctx context.Context) (sandbox, rest error) {
	sandbox = s.c.undo(ctx, func(ctx context.Context, c *Client) error {
		lost, err := c.destroy(ctx, s.ID)
		s.lost.Add(lost)
		return err
	})
	isGone := sandbox == nil || errors.Is(sandbox, ErrNotFound)
	// Without a record of the upload, the record of that id belongs to another sandbox.
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

// Lost is the number of changes that Close or Destroy removed with the sandbox, because they were
// neither applied nor synced. It is 0 before.
func (s *Sandbox) Lost() int64 { return s.lost.Load() }

func (c *Client) destroy(ctx context.Context, id string) (lost int64, err error) {
	answer, err := c.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id})
	return answer.GetDiscardedCount(), c.fail(ctx, "destroy sandbox", err)
}

// destroyUnused removes a sandbox after an error, unless another client has used it.
func (c *Client) destroyUnused(ctx context.Context, id string) error {
	_, err := c.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id, UnusedOnly: true})
	return c.fail(ctx, "destroy sandbox", err)
}

// inWorkspace returns a path relative to the workspace: "/workspace/x", "/x" and "x" are the same.
func inWorkspace(path string) string {
	const workspace = "/workspace"
	if path == workspace {
		return ""
	}
	return strings.TrimPrefix(path, workspace+"/")
}

// inside encodes a path of the workspace for the API.
func inside(path string) string { return vpath.EncodeText(inWorkspace(path)) }

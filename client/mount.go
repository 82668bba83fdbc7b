package client

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Mount is a directory of the server's host that a sandbox shows besides its workspace.
type Mount struct {
	Source string // absolute path on the server's host
	Place  string // absolute path inside; "": the same as Source
	Name   string // of the mount, for In; "": the last element of Place
	// Mode is "ro" (also ""): all can be read; "cow": all can be read and written; or a preset,
	// such as "development". What is written waits for Apply.
	Mode string
	// Rules are instead of a mode. Their patterns begin at Source.
	Rules []PermissionRule
}

// SandboxSecret is a secret of the server that a sandbox uses. Nothing returns its value.
type SandboxSecret struct {
	Name  string   // of the variable inside that has a placeholder
	Hosts []string // such as "api.example.com:443", which get the value
}

func mountsOf(operation string, mounts []Mount) ([]*sandboxv1.Mount, error) {
	var sent []*sandboxv1.Mount
	for _, m := range mounts {
		rules, err := rulesOf(operation, m.Rules)
		if err != nil {
			return nil, err
		}
		sent = append(sent, &sandboxv1.Mount{
			Source: vpath.EncodeText(m.Source), Place: vpath.EncodeText(m.Place), Name: m.Name, Mode: m.Mode, Rules: rules,
		})
	}
	return sent, nil
}

func mountsFrom(sent []*sandboxv1.Mount) []Mount {
	var mounts []Mount
	for _, m := range sent {
		mounts = append(mounts, Mount{
			Source: vpath.DecodeText(m.Source), Place: vpath.DecodeText(m.Place), Name: m.Name, Mode: m.Mode, Rules: rulesFrom(m.Rules),
		})
	}
	return mounts
}

func secretsFrom(sent []*sandboxv1.SandboxSecret) []SandboxSecret {
	var secrets []SandboxSecret
	for _, s := range sent {
		secrets = append(secrets, SandboxSecret{s.Name, s.Hosts})
	}
	return secrets
}

func encoded(names []string) []string {
	var sent []string
	for _, name := range names {
		sent = append(sent, vpath.EncodeText(name))
	}
	return sent
}

// MountChanges gives access to one mount of a sandbox: its files, and what commands changed in it.
// Apply changes the source on the server's host, if the server's configuration still lets sandboxes
// write there. The methods are as those of Sandbox. Errors: ErrNotFound for a name that no mount
// has; ErrPrecondition for the changes of a mount in which nothing can be written.
type MountChanges struct {
	// Files are the mount's, as commands see them. They can be read only.
	Files SandboxFiles

	s *Sandbox
}

// In returns the mount with a name. It does not ask the server.
func (s *Sandbox) In(mount string) *MountChanges {
	return &MountChanges{SandboxFiles{c: s.c, id: s.ID, mount: mount}, s}
}

func (m *MountChanges) diffRequest(paths []string) *sandboxv1.DiffRequest {
	return &sandboxv1.DiffRequest{SandboxId: m.s.ID, Mount: m.Files.mount, Paths: selectionOf(paths, m.Files.path)}
}

func (m *MountChanges) applyRequest(paths []string) *sandboxv1.ApplyRequest {
	return &sandboxv1.ApplyRequest{SandboxId: m.s.ID, Mount: m.Files.mount, Paths: selectionOf(paths, m.Files.path)}
}

// ApplyHunks is Sandbox.ApplyHunks in the mount.
func (m *MountChanges) ApplyHunks(ctx context.Context, digest string, ids ...string) (*ApplyResult, error) {
	r := m.applyRequest(nil)
	r.ReviewedDigest, r.Hunks = digest, ids
	return m.s.applyHunks(ctx, r)
}

// ApplyResolving is Sandbox.ApplyResolving in the mount.
func (m *MountChanges) ApplyResolving(ctx context.Context, how ConflictResolution, digest string, paths ...string) (*ApplyResult, error) {
	r := m.applyRequest(paths)
	r.ReviewedDigest = digest
	return m.s.applyResolving(ctx, how, r)
}

// Review is Sandbox.Review in the mount.
func (m *MountChanges) Review(ctx context.Context, paths ...string) (*Review, error) {
	return m.s.diff(ctx, m.diffRequest(paths))
}

// Diff is Sandbox.Diff in the mount.
func (m *MountChanges) Diff(ctx context.Context, paths ...string) ([]FileDiff, error) {
	review, err := m.Review(ctx, paths...)
	if err != nil {
		return nil, err
	}
	return review.Files, nil
}

// DiffNames is Sandbox.DiffNames in the mount.
func (m *MountChanges) DiffNames(ctx context.Context, paths ...string) ([]FileDiff, error) {
	r := m.diffRequest(paths)
	r.NamesOnly = true
	review, err := m.s.diff(ctx, r)
	if err != nil {
		return nil, err
	}
	return review.Files, nil
}

// Apply is Sandbox.Apply in the mount. ErrDenied also if the server's configuration does not let
// sandboxes write the source.
func (m *MountChanges) Apply(ctx context.Context, paths ...string) (*ApplyResult, error) {
	return m.s.apply(ctx, m.applyRequest(paths))
}

// ApplyReviewed is Sandbox.ApplyReviewed in the mount.
func (m *MountChanges) ApplyReviewed(ctx context.Context, digest string, paths ...string) (*ApplyResult, error) {
	if digest == "" {
		return nil, failure("apply", noDigest, ErrInvalid)
	}
	r := m.applyRequest(paths)
	r.ReviewedDigest = digest
	return m.s.apply(ctx, r)
}

// ApplyDryRun is Sandbox.ApplyDryRun in the mount.
func (m *MountChanges) ApplyDryRun(ctx context.Context, paths ...string) (*ApplyResult, error) {
	r := m.applyRequest(paths)
	r.DryRun = true
	return m.s.apply(ctx, r)
}

// Discard is Sandbox.Discard in the mount.
func (m *MountChanges) Discard(ctx context.Context, paths ...string) (*DiscardResult, error) {
	return m.s.discard(ctx, m.discardRequest(paths))
}

// DiscardDryRun is Sandbox.DiscardDryRun in the mount.
func (m *MountChanges) DiscardDryRun(ctx context.Context, paths ...string) (*DiscardResult, error) {
	r := m.discardRequest(paths)
	r.DryRun = true
	return m.s.discard(ctx, r)
}

func (m *MountChanges) discardRequest(paths []string) *sandboxv1.DiscardRequest {
	return &sandboxv1.DiscardRequest{SandboxId: m.s.ID, Mount: m.Files.mount, Paths: selectionOf(paths, m.Files.path)}
}

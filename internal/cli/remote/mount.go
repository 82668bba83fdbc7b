package remote

import (
	"path"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// mountsOf returns the mounts of a new sandbox, with sources on the server's host. Rules of a
// policy file are sent. Errors: Invalid, Unsupported.
func mountsOf(n backend.NewSandbox) ([]*sandboxv1.Mount, error) {
	var mounts []*sandboxv1.Mount
	for _, text := range n.Mounts {
		m, err := mountOf(text, n)
		if err != nil {
			return nil, errdefs.New(errdefs.KindOf(err), "--mount %q: %w", text, err)
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

func mountOf(text string, n backend.NewSandbox) (*sandboxv1.Mount, error) {
	s, err := mountspec.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case !path.IsAbs(s.Source):
		return nil, errdefs.New(errdefs.Invalid, "want an absolute path, because the directory is on the server's host")
	case s.Mode == mountspec.Bind:
		return nil, errdefs.New(errdefs.Unsupported, "mode bind: works only on this host, not on a server")
	}
	m := &sandboxv1.Mount{
		Source: vpath.EncodeText(s.Source), Place: vpath.EncodeText(s.Target), Name: s.Name, Mode: string(s.Mode),
	}
	if s.Mode == mountspec.PolicyFile {
		rules, err := n.MountRules(s.Policy, string(n.Source.Path))
		if err == nil {
			m.Rules, err = wireconv.EncodeMountRules(rules)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func scratchOf(texts []string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, vpath.EncodeText(text))
	}
	return out
}

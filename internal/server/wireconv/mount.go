package wireconv

import (
	"cmp"
	"path"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// NewMount is a mount that CreateSandbox asks for.
type NewMount struct {
	mountspec.Spec               // Source and Target are absolute and clean
	Sent           []policy.Rule // those of mountspec.PolicyFile
}

// requestMounts reads mounts. Errors: Invalid.
func requestMounts(sent []*sandboxv1.Mount) ([]NewMount, error) {
	var mounts []NewMount
	for i, m := range sent {
		n, err := requestMount(m)
		if err != nil {
			return nil, errdefs.New(errdefs.KindOf(err), "mounts[%d].%w", i, err)
		}
		mounts = append(mounts, n)
	}
	return mounts, nil
}

func requestMount(m *sandboxv1.Mount) (n NewMount, err error) {
	n.Source, n.Name = vpath.DecodeText(m.GetSource()), m.GetName()
	n.Target = cmp.Or(vpath.DecodeText(m.GetPlace()), n.Source)
	for _, p := range []struct {
		field string
		path  *string
	}{{"source", &n.Source}, {"place", &n.Target}} {
		if !path.IsAbs(*p.path) {
			return n, errdefs.New(errdefs.Invalid, "%s: %s: want an absolute path", p.field, vpath.Quote(*p.path))
		}
		clean, err := vpath.Parse(*p.path)
		if err != nil {
			return n, errdefs.New(errdefs.Invalid, "%s: %w", p.field, err)
		}
		*p.path = string(clean)
	}
	if n.Name != "" {
		if err := mountspec.CheckName(n.Name); err != nil {
			return n, errdefs.New(errdefs.Invalid, "name: %w", err)
		}
	}
	n.Mode = mountspec.Mode(cmp.Or(m.GetMode(), string(mountspec.ReadOnly)))
	switch {
	case len(m.GetRules()) > 0 && m.GetMode() != "" && n.Mode != mountspec.PolicyFile:
		return n, errdefs.New(errdefs.Invalid, "mode: it and rules exclude each other")
	case len(m.GetRules()) > 0:
		n.Mode = mountspec.PolicyFile
		n.Sent, err = decodeRulesOf("rules", m.GetRules(), "the request")
	case n.Mode == mountspec.PolicyFile:
		return n, errdefs.New(errdefs.Invalid, "rules: is required for mode %q", n.Mode)
	case n.Mode == mountspec.Bind:
		return n, errdefs.New(errdefs.Invalid, "mode: bind works only on this host, not on a server: it has no rules, and shows sockets")
	default:
		if _, err := mountspec.ParseMode(string(n.Mode)); err != nil {
			return n, errdefs.New(errdefs.Invalid, "mode: %w", err)
		}
	}
	return n, err
}

// checkMountName refuses a name that no mount can have; "" is the workspace. Errors: NotFound.
func checkMountName(name string) error {
	if name == "" || mountspec.CheckName(name) == nil {
		return nil
	}
	return errdefs.New(errdefs.NotFound, "mount: no mount has the name %s", vpath.Quote(name))
}

// EncodeMounts returns the mounts of a sandbox.
func EncodeMounts(mounts []record.Mount) []*sandboxv1.Mount {
	var out []*sandboxv1.Mount
	for _, m := range mounts {
		out = append(out, &sandboxv1.Mount{
			Source: vpath.EncodeText(string(m.Source)), Place: vpath.EncodeText(string(m.Target)), Name: m.Name, Mode: string(m.Mode),
			Rules: encodeRules(m.Rules),
		})
	}
	return out
}

// DecodeMounts is the reverse of EncodeMounts. It escapes names. Errors: Unsupported for a rule
// with a value of a newer server.
func DecodeMounts(sent []*sandboxv1.Mount) ([]record.Mount, error) {
	var mounts []record.Mount
	for _, m := range sent {
		r := record.Mount{
			Source: record.HostPath(vpath.DecodeText(m.Source)), Target: record.HostPath(vpath.DecodeText(m.Place)),
			Name: vpath.Escape(m.Name), Mode: mountspec.Mode(vpath.Escape(m.Mode)),
		}
		if len(m.Rules) > 0 {
			rules, err := decodeRulesOf("rules", m.Rules, SentNote)
			if err != nil {
				return nil, err
			}
			r.Rules = rules
		}
		mounts = append(mounts, r)
	}
	return mounts, nil
}

// requestScratch reads scratch directories. Errors: Invalid.
func requestScratch(sent []string) ([]scratch.Path, error) {
	texts := make([]string, len(sent))
	for i, text := range sent {
		texts[i] = vpath.DecodeText(text)
	}
	return scratch.ParseAll(texts)
}

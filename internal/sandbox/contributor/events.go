package contributor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// AuditMounts returns mounts in the form of the audit log, with digests in place of rules.
func AuditMounts(mounts []mountspec.Mount) []audit.Mount {
	var list []audit.Mount
	for _, m := range mounts {
		mount := audit.Mount{Source: audit.Text(m.Source), Target: audit.Text(m.Target), Name: m.Name, Mode: string(m.Mode)}
		if m.Mode.HasRules() {
			mount.RulesSHA256, _, _ = EncodeRules(m.Rules) // they were read from the record, or written to it
		}
		list = append(list, mount)
	}
	return list
}

// EncodeRules returns rules as JSON without spaces, and the SHA-256 of that in hex. Errors:
// Internal.
func EncodeRules(rules []policy.Rule) (sum string, text []byte, err error) {
	text, err = json.Marshal(rules)
	if err != nil {
		return "", nil, errdefs.New(errdefs.Internal, "rules: %w", err)
	}
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:]), text, nil
}

package service

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/held"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// The room of rules: of those of a request, and of all that a sandbox has had. Its record holds
// them, and the server reads all records when it creates a sandbox.
const (
	maxRuleBytes      = 1 << 20
	maxEveryRuleBytes = 4 << 20
	oneRuleBytes      = 64 // without its pattern
)

// bytesOf returns the room of rules.
func bytesOf(rules []policy.Rule) int {
	size := 0
	for _, r := range rules {
		size += len(r.Pattern) + oneRuleBytes
	}
	return size
}

// checkRuleRoom refuses rules for which a sandbox's record has no room.
func checkRuleRoom(r record.Record, rules []policy.Rule) error {
	if bytesOf(slices.Concat(append(slices.Clone(r.EarlierRules), r.Rules, rules)...)) > maxEveryRuleBytes {
		return errdefs.New(errdefs.Exhausted, "permissions: the rules and all earlier ones of the sandbox take more than %w: create a new sandbox", &errdefs.Limit{Most: maxEveryRuleBytes, Resource: "bytes"})
	}
	return nil
}

// checkRules refuses rules that take too much room, and malformed patterns. Errors: Invalid.
func checkRules(rules []policy.Rule) error { return checkRulesOf("permissions", rules) }

// checkRulesOf is checkRules of a field.
func checkRulesOf(list string, rules []policy.Rule) error {
	if bytesOf(rules) > maxRuleBytes {
		return errdefs.New(errdefs.Invalid, "%s: %d rules take more than %d bytes", list, len(rules), maxRuleBytes)
	}
	for i, rule := range rules {
		if _, err := policy.Compile([]policy.Rule{rule}, policy.Options{}); err != nil {
			return errdefs.New(errdefs.Invalid, "%s[%d].pattern: %w", list, i, err)
		}
	}
	return nil
}

// confinement is what confines a sandbox's processes, as its record names it.
type confinement struct{ name, image, net, netLimits string }

// maxImageBytes is twice the size of a registry, a name of 255 bytes and a digest.
const maxImageBytes = 1 << 10

// runtimeOf returns what is to confine a sandbox's processes; "" is the server's default. Whether
// the host has it shows at the start. Errors: Invalid; Denied for what the configuration does not
// allow the caller, whether the host has it or not.
func (s *Service) runtimeOf(caller auth.Caller, runtime, image string) (confinement, error) {
	how, err := s.checkRuntime(runtime, image)
	c := s.config.Runtime
	switch {
	case err != nil || caller.Operator:
		return how, err
	case !c.Permits(config.RuntimeType(how.name)):
		return confinement{}, errdefs.New(errdefs.Denied, "runtime %s: the server does not allow it: its operator can add it to runtime.allowed", how.name)
	case image != "" && !c.Docker.Allows(image):
		return confinement{}, errdefs.New(errdefs.Denied, "image %s: the server does not allow it: its operator can add it to runtime.docker.images", vpath.Escape(image))
	}
	return how, nil
}

// checkRuntime is runtimeOf for a caller who may name any.
func (s *Service) checkRuntime(runtime, image string) (confinement, error) {
	c := s.config.Runtime
	switch {
	case len(image) > maxImageBytes || strings.ContainsFunc(image, unicode.IsControl) || image != "" && !config.IsImage(image):
		return confinement{}, errdefs.New(errdefs.Invalid, "image: malformed (want [REGISTRY/]NAME[:TAG][@DIGEST], such as debian:12)")
	case cmp.Or(runtime, string(c.Type)) == record.RuntimeDocker:
		return confinement{name: record.RuntimeDocker, image: cmp.Or(image, c.Docker.DefaultImage), net: string(c.Docker.NetworkMode)}, nil
	case image != "":
		return confinement{}, errdefs.New(errdefs.Invalid, "image: only the docker runtime uses images")
	}
	return confinement{name: record.RuntimeBwrap, net: record.NetNone}, nil
}

// maxLabelBytes limits a sandbox's labels, which its record holds.
const maxLabelBytes = 64 << 10

func checkLabels(labels map[string]string) error {
	size := 0
	for name, value := range labels {
		if name == "" {
			return errdefs.New(errdefs.Invalid, "labels: a label has no name")
		}
		size += len(name) + len(value)
	}
	if size > maxLabelBytes {
		return errdefs.New(errdefs.Invalid, "labels: %d bytes are more than %d", size, maxLabelBytes)
	}
	return nil
}

// describe returns what a sandbox is and its state.
func (s *Service) describe(ctx context.Context, sb *record.Sandbox) (*sandboxv1.Sandbox, error) {
	_, err := api.Dial(ctx, sb.Dir())
	if err != nil && !errdefs.Is(err, errdefs.NotFound) {
		return nil, err
	}
	held, heldErr := sb.IsSyncHeld()
	if heldErr != nil {
		return nil, heldErr
	}
	live := err == nil
	d := wireconv.Sandbox{Record: sb.Record(), SyncHeld: held, UnsavedBranches: review.UnsavedBranches(sb)}
	served := d.Record.Served
	if served.Sync = s.syncOf(sb); !d.Record.IsUploaded() {
		served.Sync = config.SyncManual
	}
	d.Status, served.Failure = served.Status(live)
	served.Failure = s.scrub(served.Failure)
	d.Record.DropEnded(time.Now())
	if !mayKnowPolicy(ctx) {
		d.Record.List, d.Record.Mounts, d.Record.Scratch = hostlist.List{}, nil, nil
		d.Record.NetLimits, d.Record.Ports, d.Record.Ask, d.Record.Rules = "", published.Ports{}, nil, nil
	} else {
		d.Sent, d.Variables, d.Secrets = served.Sent, variableNames(sb), knownSecrets(&d.Record)
	}
	return wireconv.EncodeSandbox(d), nil
}

// usageOf returns what a sandbox holds, nil if the caller may not know it or the server cannot read
// it.
func usageOf(ctx context.Context, sb *record.Sandbox) *sandboxv1.SandboxUsage {
	if !mayKnowPolicy(ctx) {
		return nil
	}
	u, err := held.Of(sb)
	if err != nil {
		return nil
	}
	return wireconv.EncodeUsage(&u)
}

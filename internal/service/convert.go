package service

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/auth"
	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/supervise"
	"github.com/agentfense/agentfense/internal/vpath"
)

// permissionOf, typeOf and originOf read the enums of the wire; what is not here is
// refused.
var (
	permissionOf = map[sandboxv1.Permission]policy.Permission{
		sandboxv1.Permission_PERMISSION_UNSPECIFIED: policy.None,
		sandboxv1.Permission_PERMISSION_NONE:        policy.None,
		sandboxv1.Permission_PERMISSION_VIEW:        policy.View,
		sandboxv1.Permission_PERMISSION_READ:        policy.Read,
		sandboxv1.Permission_PERMISSION_WRITE:       policy.Write,
	}
	typeOf = map[sandboxv1.PatternType]policy.PatternType{
		sandboxv1.PatternType_PATTERN_TYPE_UNSPECIFIED: policy.Glob,
		sandboxv1.PatternType_PATTERN_TYPE_GLOB:        policy.Glob,
		sandboxv1.PatternType_PATTERN_TYPE_DIRECTORY:   policy.Directory,
		sandboxv1.PatternType_PATTERN_TYPE_FILE:        policy.File,
		sandboxv1.PatternType_PATTERN_TYPE_AUTO:        policy.Auto,
	}
	originOf = map[sandboxv1.RuleOrigin]policy.Origin{
		sandboxv1.RuleOrigin_RULE_ORIGIN_UNSPECIFIED: policy.OriginRule,
		sandboxv1.RuleOrigin_RULE_ORIGIN_FLAG:        policy.OriginFlag,
		sandboxv1.RuleOrigin_RULE_ORIGIN_HIDE:        policy.OriginHide,
	}
)

// The most that rules may take: those of a request, and all that a sandbox has
// had. Its record holds them, and is read whole whenever any sandbox is made.
const (
	maxRuleBytes      = 1 << 20
	maxEveryRuleBytes = 4 << 20
	oneRuleBytes      = 64 // besides its pattern
)

// checkRuleRoom refuses rules for which a sandbox's record has no room.
func checkRuleRoom(r sandbox.Record, rules []policy.Rule) error {
	size := 0
	for _, rule := range slices.Concat(append(slices.Clone(r.EarlierRules), r.Rules, rules)...) {
		size += len(rule.Pattern) + oneRuleBytes
	}
	if size > maxEveryRuleBytes {
		return fault.New(fault.Exhausted, "permissions: with all that the sandbox has had before they take more than %w: make a new one", &fault.Limit{Most: maxEveryRuleBytes, Resource: "bytes"})
	}
	return nil
}

// rulesOf reads the rules of a request: what they mean, and as they were sent.
func rulesOf(sent []*sandboxv1.PermissionRule) ([]policy.Rule, []sandbox.SentRule, error) {
	size := 0
	for _, r := range sent {
		size += len(r.GetPattern()) + oneRuleBytes
	}
	if size > maxRuleBytes {
		return nil, nil, fault.New(fault.Invalid, "permissions: %d rules take more than %d bytes", len(sent), maxRuleBytes)
	}
	rules := make([]policy.Rule, 0, len(sent))
	var kept []sandbox.SentRule
	for i, r := range sent {
		permission, known := permissionOf[r.GetPermission()]
		if !known {
			return nil, nil, fault.New(fault.Invalid, "permissions[%d].permission: %d is none", i, r.GetPermission())
		}
		kind, known := typeOf[r.GetType()]
		if !known {
			return nil, nil, fault.New(fault.Invalid, "permissions[%d].type: %d is none", i, r.GetType())
		}
		origin, known := originOf[r.GetOrigin()]
		if !known {
			return nil, nil, fault.New(fault.Invalid, "permissions[%d].origin: %d is none", i, r.GetOrigin())
		}
		rule := policy.Rule{Pattern: r.GetPattern(), Permission: permission, Type: kind, Priority: r.GetPriority(), Origin: origin, Source: "the request", Own: r.GetOwn() && permission == policy.None}
		if _, err := policy.Compile([]policy.Rule{rule}, policy.Options{}); err != nil {
			return nil, nil, fault.New(fault.Invalid, "permissions[%d].pattern: %w", i, err)
		}
		rules = append(rules, rule)
		kept = append(kept, sandbox.SentRule{
			Pattern: r.GetPattern(), Type: int32(r.GetType()), Permission: int32(r.GetPermission()), Priority: r.GetPriority(),
			Origin: int32(r.GetOrigin()), Own: r.GetOwn(),
		})
	}
	return rules, kept, nil
}

// confinement is what confines a sandbox's processes, in a record's words.
type confinement struct{ name, image, net string }

// maxImageBytes is twice what a registry, a name of 255 bytes and a digest take.
const maxImageBytes = 1 << 10

// runtimeOf reads what is to confine a sandbox's processes. Whether the host has
// it shows at the start. Errors: Invalid; Denied for what the configuration does
// not allow the caller, whether it is there or not.
func (s *Service) runtimeOf(caller auth.Caller, runtime sandboxv1.RuntimeType, image string) (confinement, error) {
	how, err := s.readRuntime(runtime, image)
	c := s.config.Runtime
	switch {
	case err != nil || caller.Operator:
		return how, err
	case !c.Permits(config.RuntimeType(how.name)):
		return confinement{}, fault.New(fault.Denied, "runtime %s: the server does not allow it: its operator can add it to runtime.allowed", how.name)
	case image != "" && !c.Docker.Allows(image):
		return confinement{}, fault.New(fault.Denied, "image %s: the server does not allow it: its operator can add it to runtime.docker.images", vpath.Escape(image))
	}
	return how, nil
}

// readRuntime is runtimeOf for a caller who may name any.
func (s *Service) readRuntime(runtime sandboxv1.RuntimeType, image string) (confinement, error) {
	c := s.config.Runtime
	name, known := runtimeNames[runtime]
	switch {
	case !known:
		return confinement{}, fault.New(fault.Invalid, "runtime: %d is none", runtime)
	case len(image) > maxImageBytes || strings.ContainsFunc(image, unicode.IsControl) || image != "" && !config.IsImage(image):
		return confinement{}, fault.New(fault.Invalid, "image: malformed; want [REGISTRY/]NAME[:TAG][@DIGEST], such as debian:12")
	case cmp.Or(name, string(c.Type)) == sandbox.RuntimeDocker:
		return confinement{sandbox.RuntimeDocker, cmp.Or(image, c.Docker.DefaultImage), string(c.Docker.NetworkMode)}, nil
	case image != "":
		return confinement{}, fault.New(fault.Invalid, "image: only the docker runtime has images")
	}
	return confinement{name: sandbox.RuntimeBwrap, net: sandbox.NetNone}, nil
}

// runtimeNames are the runtimes of the wire, "" the server's default.
var runtimeNames = map[sandboxv1.RuntimeType]string{
	sandboxv1.RuntimeType_RUNTIME_TYPE_UNSPECIFIED: "",
	sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP:       sandbox.RuntimeBwrap,
	sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER:      sandbox.RuntimeDocker,
}

// wireRuntime is runtimeNames in reverse.
var wireRuntime = map[string]sandboxv1.RuntimeType{
	sandbox.RuntimeBwrap:  sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP,
	sandbox.RuntimeDocker: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER,
}

// cpuPeriod is what cpu_quota counts against.
const cpuPeriod = 100 * time.Millisecond

// limitsOf reads the limits of a request; 0 is none.
func limitsOf(r *sandboxv1.ResourceLimits) (sandbox.Limits, error) {
	for _, f := range []struct {
		name               string
		value, least, most int64
	}{
		{"memory_bytes", r.GetMemoryBytes(), 1 << 20, math.MaxInt64},
		{"cpu_quota", r.GetCpuQuota(), 1000, 4096 * cpuPeriod.Microseconds()}, // the kernel's least
		{"cpu_shares", r.GetCpuShares(), 2, 1 << 18},                          // the kernel's
		{"pids_limit", r.GetPidsLimit(), 1, 1 << 22},                          // the kernel's most, see proc_sys_kernel(5)
		{"disk_bytes", r.GetDiskBytes(), 1, math.MaxInt64},
		{"disk_inodes", r.GetDiskInodes(), 1, math.MaxInt64},
	} {
		if f.value != 0 && (f.value < f.least || f.value > f.most) {
			return sandbox.Limits{}, fault.New(fault.Invalid, "resources.%s: %d is not between %d and %d", f.name, f.value, f.least, f.most)
		}
	}
	return sandbox.Limits{
		MemoryBytes: r.GetMemoryBytes(), CPUs: float64(r.GetCpuQuota()) / float64(cpuPeriod.Microseconds()),
		CPUShares: r.GetCpuShares(), PIDs: r.GetPidsLimit(), DiskBytes: r.GetDiskBytes(), DiskInodes: r.GetDiskInodes(),
	}, nil
}

// maxLabelBytes bounds a sandbox's labels, which its record holds.
const maxLabelBytes = 64 << 10

func checkLabels(labels map[string]string) error {
	size := 0
	for name, value := range labels {
		if name == "" {
			return fault.New(fault.Invalid, "labels: one has no name")
		}
		size += len(name) + len(value)
	}
	if size > maxLabelBytes {
		return fault.New(fault.Invalid, "labels: %d bytes are more than %d", size, maxLabelBytes)
	}
	return nil
}

// durationOf reads a duration of a request; absent or 0 is the default.
func durationOf(field string, d *durationpb.Duration, standard time.Duration) (time.Duration, error) {
	switch {
	case d == nil:
		return standard, nil
	case d.CheckValid() != nil:
		return 0, fault.New(fault.Invalid, "%s: is no duration", field)
	case d.AsDuration() < 0:
		return 0, fault.New(fault.Invalid, "%s: %s is negative", field, d.AsDuration())
	case d.AsDuration() == 0:
		return standard, nil
	}
	return d.AsDuration(), nil
}

// describe tells what a sandbox is and how it stands.
func (s *Service) describe(ctx context.Context, sb *sandbox.Sandbox) (*sandboxv1.Sandbox, error) {
	_, err := supervise.Dial(ctx, sb.Dir())
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	held, heldErr := sb.IsSyncHeld()
	if heldErr != nil {
		return nil, heldErr
	}
	r := sb.Record()
	d := &sandboxv1.Sandbox{
		Id: string(r.ID), CodebaseId: r.Served.CodebaseID, Labels: r.Served.Labels, Image: r.Image,
		CreatedAt: timeOf(r.CreatedAt), StartedAt: timeOf(r.Served.StartedAt), StoppedAt: timeOf(r.Served.StoppedAt),
		ExpiresAt: timeOf(r.Served.ExpiresAt), Runtime: wireRuntime[r.Runtime],
		Resources: wireLimits(r.Limits), Name: r.Name, OwnerId: r.Served.OwnerID, SyncHeld: held,
		Sync: wireSync[s.syncOf(sb)], Workspace: vpath.EncodeText(r.Workspace),
	}
	if !r.IsUploaded() {
		d.Sync = sandboxv1.SyncMode_SYNC_MODE_MANUAL
	}
	d.Status, d.StatusReason = statusOf(r.Served, err == nil)
	d.StatusReason = s.scrub(d.StatusReason)
	if !mayKnowPolicy(ctx) {
		return d, nil
	}
	for _, rule := range r.Served.Sent {
		d.Permissions = append(d.Permissions, wireRule(rule))
	}
	return d, nil
}

// statusOf says how a sandbox stands, and why if something is wrong.
func statusOf(s *sandbox.Served, lives bool) (sandboxv1.SandboxStatus, string) {
	switch {
	case lives:
		return sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING, ""
	case s.Failure != "":
		return sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR, s.Failure
	case s.Running:
		return sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR, "it was not stopped, and its supervisor has ended"
	case s.StartedAt.IsZero():
		return sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING, ""
	}
	return sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED, ""
}

// timeOf is a time of the wire, absent for the zero time.
func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// wireLimits are limits on the wire, absent if there are none.
func wireLimits(l sandbox.Limits) *sandboxv1.ResourceLimits {
	if l == (sandbox.Limits{}) {
		return nil
	}
	return &sandboxv1.ResourceLimits{
		MemoryBytes: l.MemoryBytes, CpuQuota: int64(math.Round(l.CPUs * float64(cpuPeriod.Microseconds()))),
		CpuShares: l.CPUShares, PidsLimit: l.PIDs,
		DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes,
	}
}

package wireconv

import (
	"cmp"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Rules are the rules of a request: what they mean, and as they were sent.
type Rules struct {
	Policy []policy.Rule
	Sent   []record.SentRule
}

func requestRules(sent []*sandboxv1.PermissionRule) (Rules, error) {
	rules, err := DecodeRules(sent, "the request")
	return Rules{rules, DecodeSent(sent)}, err
}

// NewSandbox is the sandbox that CreateSandbox asks for. A zero value stands for the server's
// default.
type NewSandbox struct {
	Codebase   id.Codebase
	Rules      Rules
	ExpiresIn  time.Duration
	Labels     map[string]string
	Runtime    string
	Image      string
	Limits     record.Limits
	Name       string
	UID        *uint32
	Sync       config.Sync
	AtHostPath bool
	Git        gitconfig.User
	Home       string
	Env        map[string]string
	AllowNet   []string
	NetLimits  string // as hostlist.ParseLimits returns them
	Mounts     []NewMount
	Scratch    []scratch.Path
	Secrets    []string
	Publish    []published.Port
	Ask        *record.Ask
	Board      bool
	Repository cleangit.Mode
}

// DecodeCreateSandbox reads a request.
func DecodeCreateSandbox(r *sandboxv1.CreateSandboxRequest) (s NewSandbox, err error) {
	s = NewSandbox{
		Labels: r.GetLabels(), Image: r.GetImage(), Name: r.GetName(), AtHostPath: r.GetAtHostPath(),
		Git: DecodeGit(r.GetGitUser()), Env: r.GetEnv(), Secrets: r.GetSecrets(),
	}
	if s.Codebase, err = CodebaseID(r); err != nil {
		return s, err
	}
	if s.Runtime, err = Runtime.Parse("runtime", r.GetRuntime()); err != nil {
		return s, err
	}
	if s.UID, err = record.ParseUser(r.GetUser()); err != nil {
		return s, err
	}
	if s.Home, err = record.ParseHome(r.GetHome()); err != nil {
		return s, err
	}
	if s.Limits, err = requestLimits(r.GetResources()); err != nil {
		return s, err
	}
	if s.Rules, err = requestRules(r.GetPermissions()); err != nil {
		return s, err
	}
	if s.Sync, err = Sync.Parse("sync", r.GetSync()); err != nil {
		return s, err
	}
	if s.AllowNet, err = requestHosts("allow_net", r.GetAllowNet()); err != nil {
		return s, err
	}
	if s.NetLimits, err = requestNetLimits(r.GetNetLimits()); err != nil {
		return s, err
	}
	if s.Publish, err = published.Parse(r.GetPublish()); err != nil {
		return s, errdefs.New(errdefs.Invalid, "publish: %w", err)
	}
	s.Board = r.GetBoard()
	if s.Repository, err = cleangit.ParseMode(r.GetGit()); err != nil {
		return s, err
	}
	if s.Ask, err = requestAskTimeout(r.GetAskTimeout()); err != nil {
		return s, err
	}
	if s.Mounts, err = requestMounts(r.GetMounts()); err != nil {
		return s, err
	}
	if s.Scratch, err = requestScratch(r.GetScratch()); err != nil {
		return s, err
	}
	s.ExpiresIn, err = requestDuration("expires_in", r.GetExpiresIn())
	return s, err
}

// requestNetLimits reads limits of a network into their one form. Errors: Invalid.
func requestNetLimits(texts []string) (string, error) {
	limits, err := hostlist.ParseLimits(texts...)
	if err != nil {
		return "", errdefs.New(errdefs.Invalid, "net_limits: %w", err)
	}
	return limits, nil
}

// requestLimits reads limits; 0 is no limit. Errors: Invalid for a value that the kernel refuses.
func requestLimits(r *sandboxv1.ResourceLimits) (record.Limits, error) {
	for _, f := range []struct {
		name               string
		value, least, most int64
	}{
		{"memory_bytes", r.GetMemoryBytes(), 1 << 20, math.MaxInt64},
		{"cpu_quota", r.GetCpuQuota(), 1000, 4096 * CPUPeriod.Microseconds()}, // least: kernel/sched/core.c
		{"cpu_shares", r.GetCpuShares(), 2, 1 << 18},                          // MIN_SHARES, MAX_SHARES: kernel/sched/sched.h
		{"pids_limit", r.GetPidsLimit(), 1, 1 << 22},                          // most: pid_max in proc_sys_kernel(5)
		{"disk_bytes", r.GetDiskBytes(), 1, math.MaxInt64},
		{"disk_inodes", r.GetDiskInodes(), 1, math.MaxInt64},
	} {
		if f.value != 0 && (f.value < f.least || f.value > f.most) {
			return record.Limits{}, errdefs.New(errdefs.Invalid, "resources.%s: %d is not between %d and %d", f.name, f.value, f.least, f.most)
		}
	}
	return DecodeLimits(r), nil
}

// ListSandboxes asks for a page of sandboxes; each zero value selects all.
type ListSandboxes struct {
	Codebase  id.Codebase
	OwnerID   string
	Name      string
	Labels    map[string]string
	WithUsage bool
	Page      Page
}

// DecodeListSandboxes reads a request.
func DecodeListSandboxes(r *sandboxv1.ListSandboxesRequest) (l ListSandboxes, err error) {
	l = ListSandboxes{OwnerID: r.GetOwnerId(), Name: r.GetName(), Labels: r.GetLabels(), WithUsage: r.GetWithUsage()}
	if r.GetCodebaseId() != "" {
		l.Codebase, err = CodebaseID(r)
	}
	page, pageErr := requestPage(r)
	l.Page = page
	return l, cmp.Or(err, pageErr)
}

// Destroy asks for the end of a sandbox.
type Destroy struct {
	Sandbox    id.Sandbox
	UnusedOnly bool
}

// DecodeDestroySandbox reads a request.
func DecodeDestroySandbox(r *sandboxv1.DestroySandboxRequest) (Destroy, error) {
	sb, err := SandboxID(r)
	return Destroy{sb, r.GetUnusedOnly()}, err
}

// SetPolicy asks for other rules.
type SetPolicy struct {
	Sandbox id.Sandbox
	Rules   Rules
}

// DecodeSetPolicy reads a request.
func DecodeSetPolicy(r *sandboxv1.SetPolicyRequest) (p SetPolicy, err error) {
	if p.Sandbox, err = SandboxID(r); err != nil {
		return p, err
	}
	p.Rules, err = requestRules(r.GetPermissions())
	return p, err
}

// ChangeHosts asks for other hosts that a sandbox may reach.
type ChangeHosts struct {
	Sandbox id.Sandbox
	Change  hostlist.Change
}

// DecodeChangeHosts reads a request.
func DecodeChangeHosts(r *sandboxv1.ChangeHostsRequest) (c ChangeHosts, err error) {
	if c.Sandbox, err = SandboxID(r); err != nil {
		return c, err
	}
	if c.Change.Grant, err = requestHosts("grant", r.GetGrant()); err != nil {
		return c, err
	}
	if c.Change.Revoke, err = requestHosts("revoke", r.GetRevoke()); err != nil {
		return c, err
	}
	c.Change.For, err = requestDuration("grant_for", r.GetGrantFor())
	return c, err
}

// EncodeChangeHosts is the reverse of DecodeChangeHosts.
func EncodeChangeHosts(sandbox string, c hostlist.Change) *sandboxv1.ChangeHostsRequest {
	m := &sandboxv1.ChangeHostsRequest{SandboxId: sandbox, Grant: c.Grant, Revoke: c.Revoke}
	if c.For != 0 {
		m.GrantFor = durationpb.New(c.For)
	}
	return m
}

// requestHosts reads hosts into their one form.
func requestHosts(field string, texts []string) ([]string, error) {
	hosts, err := hostlist.Parse(texts)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "%s: %w", field, err)
	}
	return hosts, nil
}

// SandboxPath is a path of a sandbox's view.
type SandboxPath struct {
	Sandbox id.Sandbox
	Path    vpath.Path
}

func decodeSandboxPath(r interface {
	GetSandboxId() string
	GetPath() string
},
) (p SandboxPath, err error) {
	if p.Sandbox, err = SandboxID(r); err != nil {
		return p, err
	}
	p.Path, err = requestPath("path", r.GetPath())
	return p, err
}

// MountPath is a path of a sandbox's view, or of the view of one of its mounts.
type MountPath struct {
	SandboxPath
	Mount string // "": the workspace
}

func decodeMountPath(r interface {
	GetSandboxId() string
	GetPath() string
	GetMount() string
},
) (MountPath, error) {
	at, err := decodeSandboxPath(r)
	return MountPath{at, r.GetMount()}, cmp.Or(err, checkMountName(r.GetMount()))
}

// DecodeExplainPolicy reads a request.
func DecodeExplainPolicy(r *sandboxv1.ExplainPolicyRequest) (MountPath, error) {
	return decodeMountPath(r)
}

// DecodeReadView reads a request.
func DecodeReadView(r *sandboxv1.ReadViewRequest) (MountPath, error) { return decodeMountPath(r) }

// ListView asks for the entries of a directory of a view.
type ListView struct {
	MountPath
	Itself bool
	Page   PageAfter
}

// DecodeListView reads a request.
func DecodeListView(r *sandboxv1.ListViewRequest) (ListView, error) {
	at, err := decodeMountPath(r)
	page, pageErr := requestPageAfter(r.GetPageSize(), r.GetPageToken())
	return ListView{at, r.GetItself(), page}, cmp.Or(err, pageErr)
}

// WatchView asks for the changes of a view.
type WatchView struct {
	MountPath
	Recursive bool
}

// DecodeWatchView reads a request.
func DecodeWatchView(r *sandboxv1.WatchViewRequest) (WatchView, error) {
	at, err := decodeMountPath(r)
	return WatchView{at, r.GetRecursive()}, err
}

// Audit asks for the events of a sandbox.
type Audit struct {
	Sandbox  id.Sandbox
	Follow   bool
	Kinds    map[audit.Kind]bool // none: all
	AfterSeq uint64
	Since    time.Time
}

// DecodeAudit reads a request.
func DecodeAudit(r *sandboxv1.AuditRequest) (a Audit, err error) {
	a = Audit{Follow: r.GetFollow(), AfterSeq: r.GetAfterSeq(), Kinds: map[audit.Kind]bool{}}
	if a.Sandbox, err = SandboxID(r); err != nil {
		return a, err
	}
	for i, name := range r.GetEvents() {
		kind := audit.Kind(name)
		if !audit.IsKind(kind) {
			return a, errdefs.New(errdefs.Invalid, "events[%d]: unknown kind of event %q", i, name)
		}
		a.Kinds[kind] = true
	}
	a.Since, err = requestTime("since", r.GetSince())
	return a, err
}

// Logs asks for the output of detached commands.
type Logs struct {
	Sandbox id.Sandbox
	Follow  bool
}

// DecodeLogs reads a request.
func DecodeLogs(r *sandboxv1.LogsRequest) (Logs, error) {
	sb, err := SandboxID(r)
	return Logs{sb, r.GetFollow()}, err
}

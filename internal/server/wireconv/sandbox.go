package wireconv

import (
	"cmp"
	"math"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/held"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// Sandbox is a server's sandbox as the API describes it.
type Sandbox struct {
	// Record is its record. The API has neither Served.Sent nor Served.Git; Served.Failure is why
	// Status is record.Failed.
	Record    record.Record
	Status    record.Status
	Sent      []record.SentRule // its rules, as they were sent
	SyncHeld  bool
	Usage     *held.Usage
	Variables []record.HostPath // names of the variables of its commands
	Secrets   []Secret
	// UnsavedBranches counts what has commits, in the clean repository, that are nowhere else.
	UnsavedBranches int
}

// Secret is what a client may know of a secret of the server.
type Secret struct {
	Name  string
	Hosts []string // HOST:PORT
}

// limitsApart is between two limits of record.Record.NetLimits.
const limitsApart = ","

// Workspace is the default path of the codebase in a server's sandboxes.
const Workspace = "/workspace"

// SentNote describes, for people, the origin of rules that a client sent and that are not of a
// preset.
const SentNote = "sent to the server"

// EncodeSandbox returns the description of a sandbox.
func EncodeSandbox(s Sandbox) *sandboxv1.Sandbox {
	r := &s.Record
	m := &sandboxv1.Sandbox{
		Id: string(r.ID), CodebaseId: r.Served.CodebaseID, Permissions: encodeSent(s.Sent), Status: Status.Encode(s.Status),
		Labels: r.Served.Labels, CreatedAt: encodeTime(r.CreatedAt), StartedAt: encodeTime(r.Served.StartedAt),
		StoppedAt: encodeTime(r.Served.StoppedAt), ExpiresAt: encodeTime(r.Served.ExpiresAt),
		Runtime: Runtime.Encode(r.Runtime), Image: r.Image, Resources: EncodeLimits(r.Limits), StatusReason: r.Served.Failure,
		Name: r.Name, OwnerId: r.Served.OwnerID, SyncHeld: s.SyncHeld, Sync: Sync.Encode(r.Served.Sync),
		Workspace: vpath.EncodeText(r.Workspace), Home: r.HomeWord(), Usage: EncodeUsage(s.Usage),
	}
	for _, host := range r.AllowNet {
		m.AllowNet = append(m.AllowNet, &sandboxv1.AllowedHost{Host: host, Until: encodeTime(r.AllowNetUntil[host])})
	}
	m.NetLimits, m.Mounts = EncodeNetLimits(r.NetLimits), EncodeMounts(r.Mounts)
	m.Publish, m.PublishAddress = r.Texts(), r.PublishAddress
	m.Board = r.Board
	m.Git, m.UnsavedBranches = string(r.Git), int64(s.UnsavedBranches)
	m.AskTimeout, m.Grants = EncodeAskTimeout(r.Ask), encodeGrants(r.ListGrants(r.Rules))
	for _, p := range r.Scratch {
		m.Scratch = append(m.Scratch, p.At().Text())
	}
	for _, secret := range s.Secrets {
		m.Secrets = append(m.Secrets, &sandboxv1.SandboxSecret{Name: secret.Name, Hosts: secret.Hosts})
	}
	for _, name := range s.Variables {
		m.Variables = append(m.Variables, vpath.EncodeText(string(name)))
	}
	return m
}

// DecodeSandbox is the reverse of EncodeSandbox. It escapes ids and names, because another
// project's server could send control sequences for a terminal. Errors: Unsupported for a rule with
// a value of a newer server; Internal.
func DecodeSandbox(m *sandboxv1.Sandbox) (Sandbox, error) {
	rules, err := decodeRulesOf("permissions", m.Permissions, SentNote)
	if err != nil {
		return Sandbox{}, errdefs.New(errdefs.Unsupported, "sandbox %s: a rule has a value that this program does not know, because the server is newer: %w", vpath.Escape(m.Id), err)
	}
	home, err := record.ParseHome(m.Home)
	if err != nil {
		return Sandbox{}, errdefs.New(errdefs.Internal, "sandbox %s: %w", vpath.Escape(m.Id), err)
	}
	note := preset.Attribute(rules, SentNote)
	s := Sandbox{
		Status: Status.Decode(m.Status), Sent: DecodeSent(m.Permissions), SyncHeld: m.SyncHeld, Usage: decodeUsage(m.Usage),
		Variables: make([]record.HostPath, len(m.Variables)),
		Record: record.Record{
			SchemaVersion: record.SchemaVersion, ID: record.ID(vpath.Escape(m.Id)), Name: vpath.Escape(m.Name),
			Workspace: cmp.Or(vpath.DecodeText(m.Workspace), Workspace),
			Rules:     rules, PolicyNote: note, Runtime: Runtime.Decode(m.Runtime), Image: vpath.Escape(m.Image), Home: home,
			Limits: DecodeLimits(m.Resources), CreatedAt: decodeTime(m.CreatedAt),
			Served: &record.Served{
				CodebaseID: vpath.Escape(m.CodebaseId), OwnerID: m.OwnerId, Labels: m.Labels, Sync: Sync.Decode(m.Sync), ExpiresAt: decodeTime(m.ExpiresAt),
				Running:   m.Status == sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING,
				StartedAt: decodeTime(m.StartedAt), StoppedAt: decodeTime(m.StoppedAt), Failure: m.StatusReason,
			},
		},
	}
	for _, a := range m.AllowNet {
		host := vpath.Escape(a.Host)
		s.Record.Net = record.NetNamed
		s.Record.AllowNet = append(s.Record.AllowNet, host)
		if a.Until != nil {
			if s.Record.AllowNetUntil == nil {
				s.Record.AllowNetUntil = map[string]time.Time{}
			}
			s.Record.AllowNetUntil[host] = decodeTime(a.Until)
		}
	}
	// Not parsed: a newer server may have other limits.
	s.Record.NetLimits = vpath.Escape(strings.Join(m.NetLimits, limitsApart))
	if s.Record.Ports, err = decodePorts(m); err != nil {
		return Sandbox{}, errdefs.New(errdefs.Internal, "sandbox %s: publish: %w", vpath.Escape(m.Id), err)
	}
	if len(m.Publish) > 0 {
		s.Record.Net = record.NetNamed
	}
	if s.Record.Mounts, err = DecodeMounts(m.Mounts); err != nil {
		return Sandbox{}, errdefs.New(errdefs.KindOf(err), "sandbox %s: mounts: %w", vpath.Escape(m.Id), err)
	}
	s.Record.Board = m.Board
	s.UnsavedBranches = int(m.UnsavedBranches)
	if s.Record.Git, err = cleangit.ParseMode(m.Git); err != nil {
		return Sandbox{}, errdefs.New(errdefs.Unsupported, "sandbox %s: %w", vpath.Escape(m.Id), err)
	}
	s.Record.Ask = decodeAskTimeout(m.AskTimeout)
	grants, err := decodeGrants(m.Grants)
	if err != nil {
		return Sandbox{}, errdefs.New(errdefs.KindOf(err), "sandbox %s: grants: %w", vpath.Escape(m.Id), err)
	}
	s.Record.Rules = s.Record.AddGrants(grants, s.Record.Rules)
	if s.Record.Scratch, err = requestScratch(m.Scratch); err != nil {
		return Sandbox{}, errdefs.New(errdefs.Internal, "sandbox %s: %w", vpath.Escape(m.Id), err)
	}
	for _, secret := range m.Secrets {
		known := Secret{Name: vpath.Escape(secret.Name)}
		for _, host := range secret.Hosts {
			known.Hosts = append(known.Hosts, vpath.Escape(host))
		}
		s.Secrets = append(s.Secrets, known)
	}
	for i, name := range m.Variables {
		s.Variables[i] = record.HostPath(vpath.DecodeText(name))
	}
	return s, nil
}

// decodePorts returns the published ports of a sandbox. Errors: Invalid.
func decodePorts(m *sandboxv1.Sandbox) (published.Ports, error) {
	ports, err := published.Parse(m.Publish)
	if err == nil && m.PublishAddress != "" {
		_, err = netip.ParseAddr(m.PublishAddress)
	}
	return published.Ports{Publish: ports, PublishAddress: m.PublishAddress}, err
}

// EncodeNetLimits returns the limits of record.Record.NetLimits, each of them alone.
func EncodeNetLimits(limits string) []string {
	if limits == "" {
		return nil
	}
	return strings.Split(limits, limitsApart)
}

// CPUPeriod is the period of ResourceLimits.cpu_quota.
const CPUPeriod = 100 * time.Millisecond

// EncodeLimits returns limits, absent if there are none.
func EncodeLimits(l record.Limits) *sandboxv1.ResourceLimits {
	if l == (record.Limits{}) {
		return nil
	}
	return &sandboxv1.ResourceLimits{
		MemoryBytes: l.MemoryBytes, CpuQuota: int64(math.Round(l.CPUs * float64(CPUPeriod.Microseconds()))),
		CpuShares: l.CPUShares, PidsLimit: l.PIDs, DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes,
	}
}

// DecodeLimits returns limits, none for an absent message.
func DecodeLimits(m *sandboxv1.ResourceLimits) record.Limits {
	return record.Limits{
		MemoryBytes: m.GetMemoryBytes(), CPUs: float64(m.GetCpuQuota()) / float64(CPUPeriod.Microseconds()),
		CPUShares: m.GetCpuShares(), PIDs: m.GetPidsLimit(), DiskBytes: m.GetDiskBytes(), DiskInodes: m.GetDiskInodes(),
	}
}

// EncodeUsage returns what a sandbox holds, absent for nil.
func EncodeUsage(u *held.Usage) *sandboxv1.SandboxUsage {
	if u == nil {
		return nil
	}
	return &sandboxv1.SandboxUsage{
		PendingChanges: int64(u.Changes), PendingChangesMore: u.More, DiskBytes: u.DiskBytes, DiskBytesMore: u.MoreDisk,
	}
}

// decodeUsage returns nil for an absent message.
func decodeUsage(m *sandboxv1.SandboxUsage) *held.Usage {
	if m == nil {
		return nil
	}
	return &held.Usage{
		Changes: int(m.PendingChanges), More: m.PendingChangesMore, DiskBytes: m.DiskBytes, MoreDisk: m.DiskBytesMore,
	}
}

// EncodeGit returns a user's name and address for git.
func EncodeGit(u gitconfig.User) *sandboxv1.GitUser {
	return &sandboxv1.GitUser{Name: u.Name, Email: u.Email}
}

// DecodeGit is the reverse of EncodeGit.
func DecodeGit(m *sandboxv1.GitUser) gitconfig.User {
	return gitconfig.User{Name: m.GetName(), Email: m.GetEmail()}
}

// EncodeSession returns a session of a sandbox.
func EncodeSession(of record.ID, s api.Session) *sandboxv1.Session {
	m := &sandboxv1.Session{
		Id: s.ID, SandboxId: string(of), Status: sandboxv1.SessionStatus_SESSION_STATUS_ACTIVE, Shell: s.Shell,
		CreatedAt: encodeTime(s.CreatedAt), ClosedAt: encodeTime(s.ClosedAt),
	}
	if !s.ClosedAt.IsZero() {
		m.Status = sandboxv1.SessionStatus_SESSION_STATUS_CLOSED
	}
	return m
}

// EncodeStats returns what a sandbox uses. A value that the host does not measure is absent.
func EncodeStats(s api.Stats) *sandboxv1.Stats {
	return &sandboxv1.Stats{
		MemoryBytes: counted(s.MemoryBytes), MemoryPeakBytes: counted(s.MemoryPeakBytes),
		CpuTime: durationpb.New(s.CPU), Pids: counted(s.PIDs),
		DeltaBytes: s.DeltaBytes, DeltaInodes: s.DeltaInodes,
		Execs: int32(s.Execs), Sessions: int32(s.Sessions),
		OomKills: s.OOMKills, PidsMaxHits: s.PIDsMaxHits, ViewRequests: s.ViewRequests,
	}
}

// DecodeStats is the reverse of EncodeStats.
func DecodeStats(m *sandboxv1.Stats) api.Stats {
	return api.Stats{
		MemoryBytes: m.GetMemoryBytes(), MemoryPeakBytes: m.GetMemoryPeakBytes(), CPU: m.GetCpuTime().AsDuration(), PIDs: m.GetPids(),
		DeltaBytes: m.GetDeltaBytes(), DeltaInodes: m.GetDeltaInodes(), Execs: int(m.GetExecs()), Sessions: int(m.GetSessions()),
		OOMKills: m.GetOomKills(), PIDsMaxHits: m.GetPidsMaxHits(), ViewRequests: m.GetViewRequests(),
	}
}

// counted returns nil for 0, which means that the host does not measure it.
func counted(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/contributor"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/limit"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// SchemaVersion is the version of the record's file format. Every change increments it,
// also an added field, because an older agentfense that ignored a field could weaken the
// sandbox. Earlier versions can be read; the next update of such a record writes this
// version.
const SchemaVersion = 11

// The runtimes.
const (
	RuntimeBwrap  = "bwrap"
	RuntimeDocker = "docker"
)

// The networks.
const (
	NetNone   = "none"
	NetHost   = "host"
	NetBridge = "bridge" // docker's
	NetNamed  = "named"  // the hosts of Record.AllowNet
)

// recordFile is the record's name in the sandbox's directory.
const recordFile = "sandbox.json"

// Record is the stored description of a sandbox.
type Record struct {
	SchemaVersion int    `json:"schema_version"`
	ID            ID     `json:"id"`
	Name          string `json:"name"`
	Source        Source `json:"source"`
	// Workspace is the source's path inside the sandbox.
	Workspace string `json:"workspace"`
	// Rules are the policy in force. PolicyNote says, for people, where they come from.
	Rules      []policy.Rule `json:"rules"`
	PolicyNote string        `json:"policy_note,omitempty"`
	// EarlierRules are the earlier policies of the sandbox. If the sandbox deleted a
	// directory, it did not see entries that one of them hid.
	EarlierRules  policy.Earlier `json:"earlier_rules,omitempty"`
	granted.Paths                // rules among Rules that end, and some that have ended
	// Earlier is what the sandbox could see and reach in addition, before it was changed.
	Earlier contributor.Earlier `json:"earlier,omitzero"`
	// Contributors are where changes are from that commands of the sandbox did not make.
	Contributors []Contributor `json:"contributors,omitempty"`
	// Ask is nil if refusals do not wait for an answer.
	Ask *Ask `json:"ask,omitempty"`
	// Board lets programs inside use the board of the source.
	Board bool `json:"board,omitempty"`
	// Marks are the project's marks, in addition to the built-in ones.
	Marks           []policyfile.RiskFlag `json:"marks,omitempty"`
	Runtime         string                `json:"runtime"`         // RuntimeBwrap or RuntimeDocker
	Image           string                `json:"image,omitempty"` // docker's
	Net             string                `json:"net"`             // NetNone, NetHost, NetBridge or NetNamed
	hostlist.List                         // the hosts of NetNamed
	published.Ports                       // that NetNamed shows on the host
	// NetLimits are the limits of the network of NetNamed, as hostlist.ParseLimits returns them.
	NetLimits string `json:"net_limits,omitempty"`
	// Secrets are what commands use over the network of NetNamed and do not know.
	Secrets []hostlist.Secret `json:"secrets,omitempty"`
	Mounts  []Mount           `json:"mounts,omitempty"`
	// Scratch are directories of the workspace with contents that are not reviewed.
	Scratch []scratch.Path `json:"scratch,omitempty"`
	// Git says which git repository the sandbox sees. It never changes.
	Git    cleangit.Mode `json:"git,omitempty"`
	Limits Limits        `json:"limits"`
	// Ignore are patterns as of gitignore(5): what of the source they match is not
	// there for the sandbox. They are those of the time when it was made.
	Ignore []byte `json:"ignore,omitempty"`
	// UID is the user and group id of the sandbox's processes inside; with docker it is
	// HostUID. nil means the ids of the user who runs the sandbox.
	UID *uint32 `json:"uid,omitempty"`
	// HostUID is the host user of the sandbox's processes if root runs it, unique to the
	// sandbox. 0 means the user who runs the sandbox.
	HostUID uint32 `json:"host_uid,omitempty"`
	// Home is HomeKeep, or empty for a new home directory with each start.
	Home      string    `json:"home,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// Served has the additional fields of a server's sandbox; nil for one that run made.
	Served *Served `json:"served,omitempty"`
}

// Mount shows a host path inside.
type Mount = mountspec.Mount

// Limits are the resource limits of a sandbox.
type Limits = limit.Limits

// Duration is a limit of time.
type Duration = limit.Duration

// SetRules makes rules the policy in force and keeps the previous one in EarlierRules.
func (r *Record) SetRules(rules []policy.Rule, note string) {
	same := func(earlier []policy.Rule) bool { return slices.Equal(earlier, r.Rules) }
	if !slices.Equal(r.Rules, rules) && !slices.ContainsFunc(r.EarlierRules, same) {
		r.EarlierRules = append(r.EarlierRules, r.Rules)
	}
	r.Rules, r.PolicyNote = slices.Clone(rules), note
}

// clone returns a copy that shares nothing.
func (r *Record) clone() Record {
	c := *r
	c.Rules, c.Paths = slices.Clone(r.Rules), r.CloneGrants()
	if r.Ask != nil {
		c.Ask = new(*r.Ask)
	}
	if r.UID != nil {
		c.UID = new(*r.UID)
	}
	c.List = r.List.Clone()
	c.Publish = slices.Clone(r.Publish)
	c.Secrets = hostlist.CloneSecrets(r.Secrets)
	c.Mounts = contributor.CloneMounts(r.Mounts)
	c.Scratch = slices.Clone(r.Scratch)
	c.Marks = slices.Clone(r.Marks)
	c.Ignore = slices.Clone(r.Ignore)
	c.Served = r.Served.clone()
	c.EarlierRules = contributor.ClonePolicies(r.EarlierRules)
	c.Earlier = r.Earlier.Clone()
	c.Contributors = contributor.CloneAll(r.Contributors)
	return c
}

// check returns an error for an invalid record.
func (r *Record) check() error {
	switch {
	case !r.ID.IsValid():
		return errdefs.New(errdefs.Precondition, "id %q is malformed", r.ID)
	case !filepath.IsAbs(string(r.Source.Path)) || r.Source.Ino == 0:
		return errdefs.New(errdefs.Precondition, "source %s is no absolute path with its identity", r.Source.Path)
	case !filepath.IsAbs(r.Workspace):
		return errdefs.New(errdefs.Precondition, "workspace %q is no absolute path", r.Workspace)
	case r.CreatedAt.IsZero():
		return errdefs.New(errdefs.Precondition, "created_at is missing")
	}
	if err := r.checkRuntime(); err != nil {
		return err
	}
	if err := errors.Join(r.List.Check(), hostlist.CheckLimits(r.NetLimits), r.CheckPorts(r.AllowNet), r.checkHome(), r.CheckGrants(), r.Ask.check()); err != nil {
		return err
	}
	for _, m := range r.Mounts {
		if err := m.Check(); err != nil {
			return err
		}
	}
	limited := r.Limits.DiskBytes > 0 || r.Limits.DiskInodes > 0
	if err := errors.Join(scratch.Check(r.Scratch, limited), r.Git.Check(limited)); err != nil {
		return err
	}
	if err := policyfile.CheckMarks(r.Marks); err != nil {
		return errdefs.New(errdefs.Precondition, "%w", err)
	}
	if r.Name == string(r.ID) {
		return nil
	}
	return CheckName(r.Name)
}

// checkRuntime refuses an unknown runtime, and an image, a network or a user that the
// runtime does not support.
func (r *Record) checkRuntime() error {
	switch {
	case r.Runtime != RuntimeBwrap && r.Runtime != RuntimeDocker:
		return errdefs.New(errdefs.Precondition, "runtime %q is unknown", r.Runtime)
	case (r.Runtime == RuntimeDocker) != (r.Image != ""):
		return errdefs.New(errdefs.Precondition, "image %q does not go with runtime %s", r.Image, r.Runtime)
	case !r.hasNetwork() || r.Net != NetNamed && len(r.AllowNet)+len(r.Secrets)+len(r.Publish) > 0:
		return errdefs.New(errdefs.Precondition, "network %q does not go with runtime %s, %d allowed hosts, %d secrets and %d published ports", r.Net, r.Runtime, len(r.AllowNet), len(r.Secrets), len(r.Publish))
	case r.UID == nil:
	case r.Runtime == RuntimeDocker && *r.UID != r.HostUID:
		return errdefs.New(errdefs.Precondition, "user %d inside does not go with runtime docker, where it is %d", *r.UID, r.HostUID)
	case r.Runtime != RuntimeDocker && *r.UID > maxUID:
		return errdefs.New(errdefs.Precondition, "user %d inside: want 0 to %d", *r.UID, maxUID)
	}
	return nil
}

// hasNetwork reports whether the runtime has the network.
func (r *Record) hasNetwork() bool {
	switch r.Net {
	case NetNone, NetHost, NetNamed:
		return true
	case NetBridge:
		return r.Runtime == RuntimeDocker
	}
	return false
}

func (r *Record) encode() ([]byte, error) {
	stored := *r
	stored.Workspace = vpath.EncodeText(r.Workspace) // JSON strings must be UTF-8
	text, err := json.MarshalIndent(stored, "", "  ")
	return append(text, '\n'), err
}

// readRecord reads the record of the sandbox in dir. The base name of dir is the sandbox's
// name. Errors: NotFound; Precondition, naming the file, if it is damaged or of a newer
// version.
func readRecord(dir string) (Record, error) {
	path := filepath.Join(dir, recordFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Lstat(dir); err != nil {
			return Record{}, NoSandbox(filepath.Base(dir))
		}
		text, err = os.ReadFile(path) // the sandbox may have appeared meanwhile
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Record{}, errdefs.New(errdefs.Precondition, "sandbox record %s: missing", path)
	case err != nil:
		return Record{}, HostError("sandbox record", err)
	}
	r, err := decodeRecord(text)
	if err == nil && r.Name != filepath.Base(dir) {
		err = errdefs.New(errdefs.Precondition, "it is of sandbox %q", r.Name)
	}
	if err != nil {
		return Record{}, errdefs.New(errdefs.Precondition, "sandbox record %s: %w", path, err)
	}
	return r, nil
}

// checked is the last record that this process has found to be one as we write it. A command reads
// the record of its sandbox ten times, and decoding takes a hundred times as long as copying.
var checked atomic.Pointer[checkedRecord]

type checkedRecord struct {
	text   []byte
	record Record
}

func decodeRecord(text []byte) (Record, error) {
	if known := checked.Load(); known != nil && bytes.Equal(known.text, text) {
		return known.record.clone().inForce(), nil
	}
	r, err := checkRecord(text)
	if err != nil {
		return Record{}, err
	}
	checked.Store(&checkedRecord{text: bytes.Clone(text), record: r.clone()})
	return r.inForce(), nil
}

// inForce is the record as it is used now.
func (r Record) inForce() Record {
	r.Workspace = vpath.DecodeText(r.Workspace)
	r.endGrants(time.Now())
	return r
}

// checkRecord reads a record in the one form that we write.
func checkRecord(text []byte) (Record, error) {
	var version struct {
		SchemaVersion int `json:"schema_version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return Record{}, errdefs.New(errdefs.Precondition, "damaged: %w", err)
	}
	if version.SchemaVersion < 1 || version.SchemaVersion > SchemaVersion {
		return Record{}, errdefs.New(errdefs.Precondition, "has schema version %d, this agentfense knows %d", version.SchemaVersion, SchemaVersion)
	}
	var r Record
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Record{}, errdefs.New(errdefs.Precondition, "damaged: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Record{}, errdefs.New(errdefs.Precondition, "damaged: text after the record")
	}
	if err := r.check(); err != nil {
		return Record{}, err
	}
	if err := isWhatWeWrite(text, &r); err != nil {
		return Record{}, err
	}
	return r, nil
}

// isWhatWeWrite refuses forms that decoding accepts but agentfense never writes: a key that
// is repeated or in another case, an unknown key of a rule. Only formatting may differ.
func isWhatWeWrite(text []byte, r *Record) error {
	again, err := json.Marshal(r)
	if err != nil {
		return errdefs.New(errdefs.Precondition, "damaged: %w", err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return errdefs.New(errdefs.Precondition, "damaged: %w", err)
	}
	if !bytes.Equal(compact.Bytes(), again) {
		return errdefs.New(errdefs.Precondition, "damaged: not in the form that agentfense writes")
	}
	return nil
}

// Alias returns the second path inside of the workspace, isolate.Workspace, or "" if the
// workspace is there already or something else is mounted there.
func (r Record) Alias() string {
	const alias = "/workspace"
	taken := func(path string) bool { return path == alias || strings.HasPrefix(path, alias+"/") }
	if taken(r.Workspace) || slices.ContainsFunc(r.Mounts, func(m Mount) bool { return taken(string(m.Target)) }) {
		return ""
	}
	return alias
}

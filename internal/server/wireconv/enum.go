package wireconv

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// wireEnum is an enum of the API.
type wireEnum interface {
	comparable
	protoreflect.Enum
}

// Enum maps an enum of the API to one of the domain.
type Enum[D comparable, W wireEnum] struct {
	wire   map[D]W
	domain map[W]D
}

// enum pairs the values. unspecified, if given, is the meaning of the API's zero value.
func enum[D comparable, W wireEnum](wire map[D]W, unspecified ...D) Enum[D, W] {
	e := Enum[D, W]{wire: wire, domain: make(map[W]D, len(wire)+1)}
	for d, w := range wire {
		e.domain[w] = d
	}
	var zero W
	for _, d := range unspecified {
		e.domain[zero] = d
	}
	return e
}

// Encode returns the API's value; unspecified for a value that the API does not have.
func (e Enum[D, W]) Encode(value D) W { return e.wire[value] }

// Decode returns the domain's value; the zero value for an unknown one.
func (e Enum[D, W]) Decode(value W) D { return e.domain[value] }

// Parse is Decode for a field of a request. Errors: Invalid for an unknown value.
func (e Enum[D, W]) Parse(field string, value W) (D, error) {
	d, known := e.domain[value]
	if !known {
		return d, errdefs.New(errdefs.Invalid, "%s: unknown value %d (want %s)", field, value.Number(), e.names())
	}
	return d, nil
}

// names returns the API's names of the known values: "A, B or C".
func (e Enum[D, W]) names() string {
	values := slices.SortedFunc(maps.Values(e.wire), func(a, b W) int { return int(a.Number() - b.Number()) })
	var names []string
	for _, v := range values {
		if v.Number() != 0 {
			names = append(names, string(v.Descriptor().Values().ByNumber(v.Number()).Name()))
		}
	}
	last := len(names) - 1
	return fmt.Sprint(strings.Join(names[:last], ", "), " or ", names[last])
}

// The enums of a policy.
var (
	Permission = enum(map[policy.Permission]sandboxv1.Permission{
		policy.None:  sandboxv1.Permission_PERMISSION_NONE,
		policy.View:  sandboxv1.Permission_PERMISSION_VIEW,
		policy.Read:  sandboxv1.Permission_PERMISSION_READ,
		policy.Write: sandboxv1.Permission_PERMISSION_WRITE,
	}, policy.None)
	PatternType = enum(map[policy.PatternType]sandboxv1.PatternType{
		policy.Auto:      sandboxv1.PatternType_PATTERN_TYPE_AUTO,
		policy.Glob:      sandboxv1.PatternType_PATTERN_TYPE_GLOB,
		policy.Directory: sandboxv1.PatternType_PATTERN_TYPE_DIRECTORY,
		policy.File:      sandboxv1.PatternType_PATTERN_TYPE_FILE,
	}, policy.Glob)
	RedactFormat = enum(map[policy.Format]sandboxv1.RedactFormat{
		policy.NoFormat: sandboxv1.RedactFormat_REDACT_FORMAT_UNSPECIFIED,
		policy.Env:      sandboxv1.RedactFormat_REDACT_FORMAT_ENV,
		policy.JSON:     sandboxv1.RedactFormat_REDACT_FORMAT_JSON,
		policy.YAML:     sandboxv1.RedactFormat_REDACT_FORMAT_YAML,
		policy.TOML:     sandboxv1.RedactFormat_REDACT_FORMAT_TOML,
	})
	RuleOrigin = enum(map[policy.Origin]sandboxv1.RuleOrigin{
		policy.OriginRule: sandboxv1.RuleOrigin_RULE_ORIGIN_UNSPECIFIED,
		policy.OriginFlag: sandboxv1.RuleOrigin_RULE_ORIGIN_FLAG,
		policy.OriginHide: sandboxv1.RuleOrigin_RULE_ORIGIN_HIDE,
	})
)

// The enums of a sandbox. "" is the server's default of a runtime and of a sync.
var (
	Status = enum(map[record.Status]sandboxv1.SandboxStatus{
		record.Pending: sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING,
		record.Running: sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING,
		record.Stopped: sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED,
		record.Failed:  sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR,
	})
	Runtime = enum(map[string]sandboxv1.RuntimeType{
		"":                   sandboxv1.RuntimeType_RUNTIME_TYPE_UNSPECIFIED,
		record.RuntimeBwrap:  sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP,
		record.RuntimeDocker: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER,
	})
	Sync = enum(map[config.Sync]sandboxv1.SyncMode{
		"":                sandboxv1.SyncMode_SYNC_MODE_UNSPECIFIED,
		config.SyncOnExec: sandboxv1.SyncMode_SYNC_MODE_ON_EXEC,
		config.SyncOnStop: sandboxv1.SyncMode_SYNC_MODE_ON_STOP,
		config.SyncManual: sandboxv1.SyncMode_SYNC_MODE_MANUAL,
	})
)

// The enums of a review and of an apply.
var (
	ChangeStatus = enum(map[changes.Status]sandboxv1.ChangeStatus{
		changes.Added:    sandboxv1.ChangeStatus_CHANGE_STATUS_ADDED,
		changes.Modified: sandboxv1.ChangeStatus_CHANGE_STATUS_MODIFIED,
		changes.Deleted:  sandboxv1.ChangeStatus_CHANGE_STATUS_DELETED,
		changes.Retyped:  sandboxv1.ChangeStatus_CHANGE_STATUS_RETYPED,
	})
	Risk = enum(map[review.Risk]sandboxv1.Risk{
		review.NoRisk:       sandboxv1.Risk_RISK_UNSPECIFIED,
		review.TrustedLater: sandboxv1.Risk_RISK_TRUSTED_LATER,
		review.RunsOnHost:   sandboxv1.Risk_RISK_RUNS_ON_HOST,
	})
	TransactionKind = enum(map[history.Kind]sandboxv1.TransactionKind{
		history.Apply: sandboxv1.TransactionKind_TRANSACTION_KIND_APPLY,
		history.Keep:  sandboxv1.TransactionKind_TRANSACTION_KIND_KEEP,
		history.Undo:  sandboxv1.TransactionKind_TRANSACTION_KIND_UNDO,
		history.Redo:  sandboxv1.TransactionKind_TRANSACTION_KIND_REDO,
	})
	TransactionState = enum(map[history.State]sandboxv1.TransactionState{
		history.Pending:    sandboxv1.TransactionState_TRANSACTION_STATE_PENDING,
		history.Committed:  sandboxv1.TransactionState_TRANSACTION_STATE_COMMITTED,
		history.RolledBack: sandboxv1.TransactionState_TRANSACTION_STATE_ROLLED_BACK,
	})
	Outcome = enum(map[apply.Outcome]sandboxv1.Outcome{
		apply.Applied:            sandboxv1.Outcome_OUTCOME_APPLIED,
		apply.Present:            sandboxv1.Outcome_OUTCOME_PRESENT,
		apply.Kept:               sandboxv1.Outcome_OUTCOME_KEPT,
		apply.Conflict:           sandboxv1.Outcome_OUTCOME_CONFLICT,
		apply.Refused:            sandboxv1.Outcome_OUTCOME_REFUSED,
		apply.Failed:             sandboxv1.Outcome_OUTCOME_FAILED,
		apply.Skipped:            sandboxv1.Outcome_OUTCOME_SKIPPED,
		apply.ChangedSinceReview: sandboxv1.Outcome_OUTCOME_CHANGED_SINCE_REVIEW,
		apply.LeftOut:            sandboxv1.Outcome_OUTCOME_LEFT_OUT,
	})
	ConflictKind = enum(map[conflict.Kind]sandboxv1.ConflictKind{
		"":                        sandboxv1.ConflictKind_CONFLICT_KIND_UNSPECIFIED,
		conflict.Text:             sandboxv1.ConflictKind_CONFLICT_KIND_TEXT,
		conflict.Binary:           sandboxv1.ConflictKind_CONFLICT_KIND_BINARY,
		conflict.TooLarge:         sandboxv1.ConflictKind_CONFLICT_KIND_TOO_LARGE,
		conflict.NoBase:           sandboxv1.ConflictKind_CONFLICT_KIND_NO_BASE,
		conflict.Link:             sandboxv1.ConflictKind_CONFLICT_KIND_LINK,
		conflict.Mode:             sandboxv1.ConflictKind_CONFLICT_KIND_MODE,
		conflict.DeleteModify:     sandboxv1.ConflictKind_CONFLICT_KIND_DELETE_MODIFY,
		conflict.RenameEdit:       sandboxv1.ConflictKind_CONFLICT_KIND_RENAME_EDIT,
		conflict.TypeChange:       sandboxv1.ConflictKind_CONFLICT_KIND_TYPE_CHANGE,
		conflict.BothAdded:        sandboxv1.ConflictKind_CONFLICT_KIND_BOTH_ADDED,
		conflict.Directory:        sandboxv1.ConflictKind_CONFLICT_KIND_DIRECTORY,
		conflict.Hidden:           sandboxv1.ConflictKind_CONFLICT_KIND_HIDDEN,
		conflict.HiddenBelow:      sandboxv1.ConflictKind_CONFLICT_KIND_HIDDEN_BELOW,
		conflict.Refused:          sandboxv1.ConflictKind_CONFLICT_KIND_REFUSED,
		conflict.ChangedMeanwhile: sandboxv1.ConflictKind_CONFLICT_KIND_CHANGED_MEANWHILE,
	})
	Resolution = enum(map[conflict.Resolution]sandboxv1.ConflictResolution{
		conflict.Merge:   sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_UNSPECIFIED,
		conflict.Ours:    sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_OURS,
		conflict.Theirs:  sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_THEIRS,
		conflict.Markers: sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_MARKERS,
	})
)

// The enums of a view and of the effects of commands.
var (
	ViewOrigin = enum(map[readview.Origin]sandboxv1.ViewOrigin{
		readview.OfSource: sandboxv1.ViewOrigin_VIEW_ORIGIN_SOURCE,
		readview.OfFrozen: sandboxv1.ViewOrigin_VIEW_ORIGIN_FROZEN,
		readview.OfDelta:  sandboxv1.ViewOrigin_VIEW_ORIGIN_DELTA,
	})
	ChangeKind = enum(map[api.ChangeKind]sandboxv1.ChangeKind{
		api.Created:  sandboxv1.ChangeKind_CHANGE_KIND_CREATED,
		api.Modified: sandboxv1.ChangeKind_CHANGE_KIND_MODIFIED,
		api.Deleted:  sandboxv1.ChangeKind_CHANGE_KIND_DELETED,
		api.Renamed:  sandboxv1.ChangeKind_CHANGE_KIND_RENAMED,
	})
	// AskScope is that of an answer.
	AskScope = enum(map[api.Scope]sandboxv1.AskScope{
		api.ScopeOnce:    sandboxv1.AskScope_ASK_SCOPE_ONCE,
		api.ScopeSandbox: sandboxv1.AskScope_ASK_SCOPE_SANDBOX,
	}, api.ScopeOnce)
	Stream = enum(map[outlog.Stream]sandboxv1.ExecOutput_OutputType{
		outlog.Stdout: sandboxv1.ExecOutput_OUTPUT_TYPE_STDOUT,
		outlog.Stderr: sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR,
	})
)

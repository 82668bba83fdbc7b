package wireconv

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/held"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// messagePair is a message that is made of the domain and read back.
type messagePair struct {
	round func(t *testing.T) (sent, back proto.Message)
	// lost are the fields that do not come back, and why that is right.
	lost map[string]string
}

// through makes a pair of a function that reads a message and makes it again. prepare,
// unless nil, gives fields the values that have a meaning.
func through[M proto.Message](of M, prepare func(M), round func(M) (M, error)) func(*testing.T) (sent, back proto.Message) {
	return func(t *testing.T) (sent, back proto.Message) {
		m := filled(of)
		if prepare != nil {
			prepare(m)
		}
		got, err := round(proto.CloneOf(m))
		if err != nil {
			t.Fatal(err)
		}
		return m, got
	}
}

const (
	keptHere = "a server reports it when a command ends"
	noLocks  = "the audit log has the lock; its message has the permission that it leaves"
)

const inContent = "EncodeContent writes it, see TestContentSurvives"

var messagePairs = map[string]messagePair{
	"PermissionRule": {round: through(&sandboxv1.PermissionRule{}, ownRule, func(m *sandboxv1.PermissionRule) (*sandboxv1.PermissionRule, error) {
		rules, err := decodeRulesOf("rules", []*sandboxv1.PermissionRule{m}, SentNote)
		if err != nil {
			return nil, err
		}
		back, err := EncodeMountRules(rules)
		return back[0], err
	})},
	"a rule as it was sent": {round: through(&sandboxv1.PermissionRule{}, nil, func(m *sandboxv1.PermissionRule) (*sandboxv1.PermissionRule, error) {
		return encodeSent(DecodeSent([]*sandboxv1.PermissionRule{m}))[0], nil
	})},
	"ExplainPolicyResponse": {round: through(&sandboxv1.ExplainPolicyResponse{}, nil, func(m *sandboxv1.ExplainPolicyResponse) (*sandboxv1.ExplainPolicyResponse, error) {
		rules := make([]record.SentRule, 1000)
		rules[m.RuleIndex] = DecodeSent([]*sandboxv1.PermissionRule{m.Rule})[0]
		x, err := DecodeExplanation(m, "", len(rules))
		return EncodeExplanation(x, rules), err
	})},
	"Sandbox": {round: through(&sandboxv1.Sandbox{}, func(m *sandboxv1.Sandbox) {
		m.Home, m.Git, m.Publish, m.PublishAddress = record.HomeKeep, "clean:7", []string{"8080:3000"}, "127.0.0.9"
		for _, mount := range m.Mounts {
			for _, rule := range mount.Rules {
				ownRule(rule)
			}
		}
	}, func(m *sandboxv1.Sandbox) (*sandboxv1.Sandbox, error) {
		s, err := DecodeSandbox(m)
		return EncodeSandbox(s), err
	})},
	"ListLocksResponse": {round: through(&sandboxv1.ListLocksResponse{}, nil, func(m *sandboxv1.ListLocksResponse) (*sandboxv1.ListLocksResponse, error) {
		return EncodeLocks(DecodeLocks(m)), nil
	})},
	"ReadMessagesResponse": {round: through(&sandboxv1.ReadMessagesResponse{}, nil, func(m *sandboxv1.ReadMessagesResponse) (*sandboxv1.ReadMessagesResponse, error) {
		return EncodePage(DecodePage(m)), nil
	})},
	"ExportSummary": {round: through(&sandboxv1.ExportSummary{}, nil, func(m *sandboxv1.ExportSummary) (*sandboxv1.ExportSummary, error) {
		return EncodeExportSummary(DecodeExportSummary(m)), nil
	})},
	"ExportLeftOut": {round: through(&sandboxv1.ExportLeftOut{}, nil, func(m *sandboxv1.ExportLeftOut) (*sandboxv1.ExportLeftOut, error) {
		l, err := DecodeLeftOut(m)
		return EncodeLeftOut(l), err
	})},
	"QuerySandboxResponse": {round: through(&sandboxv1.QuerySandboxResponse{}, func(m *sandboxv1.QuerySandboxResponse) {
		m.Columns = []string{"a"}
		m.Rows = m.Rows[:1]
		m.Rows[0].Values = []*sandboxv1.QueryValue{{Value: &sandboxv1.QueryValue_Integer{Integer: 7}}}
	}, func(m *sandboxv1.QuerySandboxResponse) (*sandboxv1.QuerySandboxResponse, error) {
		rows, err := DecodeQueryRows(m)
		return EncodeQueryRows(rows), err
	})},
	"Board": {round: through(&sandboxv1.Board{}, nil, func(m *sandboxv1.Board) (*sandboxv1.Board, error) {
		return EncodeBoard(DecodeBoard(m)), nil
	})},
	"ListAsksResponse": {
		round: through(&sandboxv1.ListAsksResponse{}, nil, func(m *sandboxv1.ListAsksResponse) (*sandboxv1.ListAsksResponse, error) {
			return EncodeAsks(DecodeAsks(m)), nil
		}),
		lost: map[string]string{"ListAsksResponse.version": "it is computed"},
	},
	"ResourceLimits": {round: through(&sandboxv1.ResourceLimits{}, nil, func(m *sandboxv1.ResourceLimits) (*sandboxv1.ResourceLimits, error) {
		return EncodeLimits(DecodeLimits(m)), nil
	})},
	"GitUser": {round: through(&sandboxv1.GitUser{}, nil, func(m *sandboxv1.GitUser) (*sandboxv1.GitUser, error) {
		return EncodeGit(DecodeGit(m)), nil
	})},
	"Stats": {round: through(&sandboxv1.Stats{}, nil, func(m *sandboxv1.Stats) (*sandboxv1.Stats, error) {
		return EncodeStats(DecodeStats(m)), nil
	})},
	"FileDiff": {
		round: through(&sandboxv1.FileDiff{}, nil, func(m *sandboxv1.FileDiff) (*sandboxv1.FileDiff, error) {
			f, err := DecodeFileDiff(m)
			return EncodeFileDiff(&f), err
		}),
		lost: map[string]string{
			"FileDiff.binary": inContent, "FileDiff.too_large": inContent, "FileDiff.inserted": inContent, "FileDiff.deleted": inContent,
			"FileDiff.patch": inContent, "FileDiff.patch_bytes": inContent, "FileDiff.old_content_unknown": inContent, "FileState.sha256": inContent,
			"FileDiff.id": "the reader derives ids from the content", "FileDiff.mode_id": "as id", "FileDiff.hunks": "as id",
			"FileDiff.patch_omitted": "the reader takes it for too_large: there is nothing to show",
		},
	},
	"ChangeGroup": {
		round: through(&sandboxv1.ChangeGroup{}, nil, func(m *sandboxv1.ChangeGroup) (*sandboxv1.ChangeGroup, error) {
			return EncodeGroups(DecodeGroups([]*sandboxv1.ChangeGroup{m}, []review.FileDiff{{Path: "/a", Group: m.Name}}))[0], nil
		}),
		lost: map[string]string{"ChangeGroup.count": "the reader counts the files that it got"},
	},
	"ViewEntry": {round: through(&sandboxv1.ViewEntry{}, nil, func(m *sandboxv1.ViewEntry) (*sandboxv1.ViewEntry, error) {
		e, err := DecodeViewEntry(m)
		return EncodeViewEntry(e), err
	})},
	"ApplyResponse": {
		round: through(&sandboxv1.ApplyResponse{}, func(m *sandboxv1.ApplyResponse) {
			for _, r := range m.Results { // of those that were applied the order is another
				r.Outcome = sandboxv1.Outcome_OUTCOME_CONFLICT
			}
		}, func(m *sandboxv1.ApplyResponse) (*sandboxv1.ApplyResponse, error) {
			result, err := DecodeApplied(m)
			return EncodeApplied(result), err
		}),
		lost: map[string]string{
			"ApplyResponse.result_count": "the reader counts the results that it got", "ApplyResponse.applied_count": "as result_count",
		},
	},
	"Commit": {
		round: through(&sandboxv1.Commit{}, nil, func(m *sandboxv1.Commit) (*sandboxv1.Commit, error) {
			c := DecodeCommit(m)
			return EncodeCommit(&c), nil
		}),
	},
	"ApplyCommitsResponse": {
		round: through(&sandboxv1.ApplyCommitsResponse{}, nil, func(m *sandboxv1.ApplyCommitsResponse) (*sandboxv1.ApplyCommitsResponse, error) {
			return EncodeAppliedCommits(DecodeAppliedCommits(m)), nil
		}),
	},
	"Reversal": {
		round: through(&sandboxv1.Reversal{}, nil, func(m *sandboxv1.Reversal) (*sandboxv1.Reversal, error) {
			r, err := DecodeReversal(m)
			return EncodeReversal(r), err
		}),
		lost: map[string]string{
			"Reversal.path_count": "the reader counts the paths that it got", "Reversal.conflict_count": "as path_count",
		},
	},
	"DiscardResponse": {
		round: through(&sandboxv1.DiscardResponse{}, nil, func(m *sandboxv1.DiscardResponse) (*sandboxv1.DiscardResponse, error) {
			result, err := DecodeDiscarded(m)
			return EncodeDiscarded(result), err
		}),
		lost: map[string]string{"DiscardResponse.path_count": "the reader counts the paths that it got"},
	},
	"ReadChangesResponse.Change": {round: through(&sandboxv1.ReadChangesResponse_Change{}, nil, func(m *sandboxv1.ReadChangesResponse_Change) (*sandboxv1.ReadChangesResponse_Change, error) {
		c, err := DecodeChange(m)
		return EncodeChange(c), err
	}), lost: map[string]string{"FileState.link_count": "an apply places each name as a file"}},
	"ExecOutput": {
		round: through(&sandboxv1.ExecOutput{}, nil, func(m *sandboxv1.ExecOutput) (*sandboxv1.ExecOutput, error) {
			return EncodeEnding(DecodeEnding(m)), nil
		}),
		lost: map[string]string{
			"ExecOutput.type": "output is copied as it comes", "ExecOutput.data": "as type", "ExecOutput.lost_bytes": "as type",
		},
	},
	"LogRecord": {round: through(&sandboxv1.LogRecord{}, nil, func(m *sandboxv1.LogRecord) (*sandboxv1.LogRecord, error) {
		r := DecodeLogRecord(m)
		var argv []string
		for _, arg := range r.Argv {
			argv = append(argv, string(arg))
		}
		return EncodeLogRecord(r, argv, new(int32(r.Exit.Code))), nil
	})},
	"Codebase": {round: through(&sandboxv1.Codebase{}, nil, func(m *sandboxv1.Codebase) (*sandboxv1.Codebase, error) {
		return EncodeCodebase(DecodeCodebase(m)), nil
	})},
	"FileInfo": {round: through(&sandboxv1.FileInfo{}, func(m *sandboxv1.FileInfo) { m.Path, m.Name, m.Mode = "dir/name", "name", 0o40755 }, func(m *sandboxv1.FileInfo) (*sandboxv1.FileInfo, error) {
		f, err := DecodeFile(m)
		return EncodeFile(f), err
	})},
}

// ownRule is a rule of none, the only ones that may be own.
func ownRule(m *sandboxv1.PermissionRule) { m.Permission = sandboxv1.Permission_PERMISSION_NONE }

// A message that is read and made again is the same, field by field.
func TestEveryFieldSurvives(t *testing.T) {
	for name, pair := range messagePairs {
		t.Run(name, func(t *testing.T) {
			sent, back := pair.round(t)
			checkLost(t, pair.lost, func(report func(string)) { differ(sent.ProtoReflect(), back.ProtoReflect(), report) })
		})
	}
}

// oneWay are messages that no pair above holds, and why. Requests are not among them, see
// TestEveryFieldOfARequestIsRead.
var oneWay = map[string]string{
	"Empty":                 "a number alone, which the command line does not ask for",
	"ListSandboxesResponse": "a page", "ListCodebasesResponse": "a page", "ListViewResponse": "a page", "ListFilesResponse": "a page",
	"DiffResponse": "a page", "PostMessageResponse": "a number", "ListCommitsResponse": "a page", "ListTransactionsResponse": "a page", "ListExecsResponse": "a page", "ListSessionsResponse": "a page",
	"Session": "only the SDKs read it", "DetachedExec": "only the SDKs read it", "ExecResult": "only the SDKs read it; ExecOutput has its fields",
	"WatchViewResponse":   "only the SDKs read it",
	"AuditEvent":          "its reader is that of the log: audit.ReadFrom",
	"ReadChangesResponse": "a header or bytes", "ReadViewResponse": "bytes", "FileChunk": "bytes",
	"ExportChangesResponse": "a summary, what is left out, or bytes",
	"UploadResult":          "only the SDKs read it", "UploadTreeResult": "a count",
	"ForkSandboxResponse": "a list", "ForkRules": "in a request, which TestEveryFieldOfARequestIsRead reads with it",
}

// Each message of the API is tested above, or there is a reason not to.
func TestEveryMessageHasAPair(t *testing.T) {
	tested := map[protoreflect.FullName]bool{}
	for _, pair := range messagePairs {
		sent, _ := pair.round(t)
		noteMessages(sent.ProtoReflect().Descriptor(), tested)
	}
	var all []protoreflect.MessageDescriptor
	for _, file := range apiFiles() {
		all = append(all, messagesIn(file.Messages())...)
	}
	unused, sent := maps.Clone(oneWay), requestMessages()
	for _, d := range all {
		name := strings.TrimPrefix(string(d.FullName()), "sandbox.v1.")
		delete(unused, name)
		if has := tested[d.FullName()] || sent[name] != nil; has == (oneWay[name] != "") {
			t.Errorf("%s: tested or a request: %t; listed in oneWay: %t", name, has, oneWay[name] != "")
		}
	}
	for name := range unused {
		t.Errorf("oneWay names %s, which the API does not have", name)
	}
}

// noteMessages notes a message and those that its fields are.
func noteMessages(d protoreflect.MessageDescriptor, into map[protoreflect.FullName]bool) {
	into[d.FullName()] = true
	for i := range d.Fields().Len() {
		if m := d.Fields().Get(i).Message(); m != nil && !into[m.FullName()] {
			noteMessages(m, into)
		}
	}
}

// messagesIn lists messages and those that they declare, without the entries of maps.
func messagesIn(list protoreflect.MessageDescriptors) []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	for i := range list.Len() {
		if d := list.Get(i); !d.IsMapEntry() {
			all = append(append(all, d), messagesIn(d.Messages())...)
		}
	}
	return all
}

// domainPair is a value of the domain that is sent and read back.
type domainPair struct {
	round func(t *testing.T) (sent, back any)
	lost  map[string]string
}

// sentAs makes a pair of a function that makes a message and reads it.
func sentAs[D any](prepare func(*D), round func(D) (D, error)) func(*testing.T) (sent, back any) {
	return func(t *testing.T) (sent, back any) {
		var d D
		(&filler{}).value(reflect.ValueOf(&d).Elem())
		if prepare != nil {
			prepare(&d)
		}
		got, err := round(d)
		if err != nil {
			t.Fatal(err)
		}
		return d, got
	}
}

const (
	ofTheHost  = "of the server's host, which is not the client's business"
	onThisHost = "only a sandbox without a server has it"
	fromSent   = "made of Sandbox.Sent"
	ofReview   = "the review has it"
	// ofStatements are what statements about an apply say, which the server makes.
	ofStatements = "of statements about an apply, which the server makes"
)

var domainPairs = map[string]domainPair{
	"policy.Rule": {
		round: sentAs(func(r *policy.Rule) { r.Permission, r.Transform.Redact = policy.None, policy.TOML }, func(r policy.Rule) (policy.Rule, error) {
			sent, err := EncodeMountRules([]policy.Rule{r})
			if err != nil {
				return r, err
			}
			back, err := decodeRulesOf("rules", sent, SentNote)
			return back[0], err
		}),
		lost: map[string]string{"Rule.Source": "each side says where it has a rule from"},
	},
	"record.SentRule": {round: sentAs(nil, func(r record.SentRule) (record.SentRule, error) {
		return DecodeSent(encodeSent([]record.SentRule{r}))[0], nil
	})},
	"policy.Explanation": {
		round: sentAs(nil, func(x policy.Explanation) (policy.Explanation, error) {
			rules := make([]record.SentRule, 1000)
			rules[x.Decision.Rule] = DecodeSent(encodeRules([]policy.Rule{{Transform: x.Decision.Transform}}))[0]
			return DecodeExplanation(EncodeExplanation(x, rules), x.Path, len(rules))
		}),
		lost: map[string]string{
			"Explanation.Inherited": "its rule is Decision.Rule where there is an ancestor",
			"Decision.Own":          "the rule says it",
			"Decision.Locked":       noLocks,
		},
	},
	"Sandbox": {
		round: sentAs(func(s *Sandbox) {
			s.Record.Home, s.Record.Runtime, s.Record.Git = record.HomeKeep, record.RuntimeDocker, "clean:7"
			s.Record.Ports = published.Ports{Publish: []published.Port{{Host: 8080, Inside: 3000}}, PublishAddress: "127.0.0.9"}
			for _, m := range s.Record.Mounts {
				for i := range m.Rules {
					m.Rules[i].Permission, m.Rules[i].Transform.Redact = policy.None, policy.TOML
				}
			}
			s.Sent = DecodeSent(filled(&sandboxv1.Sandbox{}).Permissions)
		}, func(s Sandbox) (Sandbox, error) { return DecodeSandbox(EncodeSandbox(s)) }),
		lost: map[string]string{
			"Record.SchemaVersion": "the reader's", "Record.Source": ofTheHost,
			"Record.Rules": fromSent, "Record.PolicyNote": fromSent, "Record.EarlierRules": "of the supervisor alone", "Record.Contributors": ofStatements,
			"Earlier.AllowNet": ofStatements, "Earlier.Nets": ofStatements, "Earlier.Secrets": ofStatements, "Earlier.Mounts": ofStatements, "Earlier.Publish": ofStatements,
			"Record.Marks": ofTheHost, "Record.Net": ofTheHost, "List.AllowNetUntil": "a list has no end of a host that is not in it", "Record.Secrets": "Sandbox.Secrets has what a client may know", "Rule.Source": "each side says where it has a rule from",
			"Mount.Dev": ofTheHost, "Mount.Ino": ofTheHost, "Mount.Born": ofTheHost, "Mount.EarlierRules": "of the supervisor alone",
			"Record.Ignore": ofTheHost, "Ask.Hook": onThisHost, "Paths.Grants": "a grant without its rule has ended", "Paths.GrantsEnded": ofTheHost, "Paths.InMounts": ofTheHost,
			"Record.UID": ofTheHost, "Record.HostUID": ofTheHost, "Limits.Timeout": "the timeout of a request",
			"Served.Sent": "Sandbox.Sent has them", "Served.Git": "the client has sent it",
		},
	},
	"held.Usage": {round: sentAs(nil, func(u held.Usage) (held.Usage, error) { return *decodeUsage(EncodeUsage(&u)), nil })},
	"gitconfig.User": {round: sentAs(nil, func(u gitconfig.User) (gitconfig.User, error) {
		return DecodeGit(EncodeGit(u)), nil
	})},
	"api.Stats": {round: sentAs(nil, func(s api.Stats) (api.Stats, error) { return DecodeStats(EncodeStats(s)), nil })},
	"review.FileDiff": {
		round: sentAs(nil, func(f review.FileDiff) (review.FileDiff, error) { return DecodeFileDiff(EncodeFileDiff(&f)) }),
		lost: map[string]string{
			"FileDiff.NotPlaced": "of an apply on this host", "FileDiff.Keeping": keptHere, "FileDiff.Change": ofTheHost,
		},
	},
	"readview.Entry": {round: sentAs(nil, func(e readview.Entry) (readview.Entry, error) { return DecodeViewEntry(EncodeViewEntry(e)) })},
	"Applied": {
		round: sentAs(nil, func(r Applied) (Applied, error) {
			for i := range r.Paths {
				r.Paths[i].Implied = false
			}
			return DecodeApplied(EncodeApplied(r))
		}),
		lost: map[string]string{
			"PathResult.Keys": keptHere, "PathResult.KeyConflicts": keptHere, "PathResult.Mark": ofReview, "PathResult.Group": ofReview, "PathResult.RenamedFrom": ofReview, "PathResult.RenamedTo": ofReview,
			"PathResult.Overwrote": "a server has no option to overwrite", "Result.Groups": ofReview,
			"Result.Growth": "what a directory of this host grows by",
		},
	},
	"branch.Listed": {round: sentAs(func(c *branch.Listed) {
		for i := range c.Files {
			c.Files[i].Outcome = branch.FileRefused
		}
	}, func(c branch.Listed) (branch.Listed, error) { return DecodeCommit(EncodeCommit(&c)), nil })},
	"branch.AppliedCommits": {round: sentAs(nil, func(a branch.AppliedCommits) (branch.AppliedCommits, error) {
		return *DecodeAppliedCommits(EncodeAppliedCommits(&a)), nil
	})},
	"undo.Result": {
		round: sentAs(nil, func(r undo.Result) (undo.Result, error) {
			for i := range r.Paths {
				r.Paths[i].Implied = false
			}
			return DecodeReversal(EncodeReversal(r))
		}),
		lost: map[string]string{
			"Header.Version": ofTheHost, "Header.Seq": ofTheHost, "Header.UID": ofTheHost, "Header.Source": ofTheHost, "Header.Elsewhere": ofTheHost,
			"Header.Owner": ofTheHost, "Header.Branch": ofTheHost, "Header.HasRest": ofTheHost, "Entry.Steps": ofTheHost,
		},
	},
	"apply.DiscardResult": {round: sentAs(nil, func(r apply.DiscardResult) (apply.DiscardResult, error) { return DecodeDiscarded(EncodeDiscarded(r)) })},
	"apply.CarriedChange": {round: sentAs(nil, func(c apply.CarriedChange) (apply.CarriedChange, error) { return DecodeChange(EncodeChange(c)) })},
	"Ending": {
		round: sentAs(nil, func(e Ending) (Ending, error) { return DecodeEnding(EncodeEnding(e)), nil }),
		lost: map[string]string{
			"Ending.Duration": "ExecResult alone has it: whoever reads a stream measures it",
		},
	},
	"outlog.Record": {
		round: sentAs(nil, func(r outlog.Record) (outlog.Record, error) {
			var argv []string
			for _, arg := range r.Argv {
				argv = append(argv, string(arg))
			}
			return DecodeLogRecord(EncodeLogRecord(r, argv, new(int32(r.Exit.Code)))), nil
		}),
		lost: map[string]string{
			"Exit.Signal": "the exit code says it", "Exit.Reason": "the exit code says it",
			"Record.Over": "not sent: it is for readers of the file", "Record.Opened": "not sent: it is for readers of the file",
		},
	},
	"Codebase": {round: sentAs(nil, func(c Codebase) (Codebase, error) { return DecodeCodebase(EncodeCodebase(c)), nil })},
	"File":     {round: sentAs(nil, func(f File) (File, error) { return DecodeFile(EncodeFile(f)) })},
}

// A value of the domain that is sent and read is the same, field by field.
func TestEveryValueSurvives(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(domainPairs)) {
		t.Run(name, func(t *testing.T) {
			pair := domainPairs[name]
			sent, back := pair.round(t)
			checkLost(t, pair.lost, func(report func(string)) {
				differValue(reflect.ValueOf(sent), reflect.ValueOf(back), name, pair.lost, report)
			})
		})
	}
}

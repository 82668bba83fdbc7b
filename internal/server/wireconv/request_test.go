package wireconv

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// decode is a converter of a request, for any request.
type decode func(proto.Message) (any, error)

// by makes a decode of a converter.
func by[M, D any](convert func(M) (D, error)) decode {
	return func(m proto.Message) (any, error) { return convert(m.(M)) }
}

// requests are the converters of the requests, and of the messages in the streams of requests.
var requests = map[string]decode{
	"CreateCodebaseRequest": by(func(r *sandboxv1.CreateCodebaseRequest) (NewCodebase, error) { return DecodeCreateCodebase(r, "") }),
	"GetCodebaseRequest":    by(CodebaseID), "DeleteCodebaseRequest": by(CodebaseID),
	"ListCodebasesRequest": by(DecodeListCodebases), "LinkCodebaseRequest": by(DecodeLinkCodebase),
	"UploadChunk.Metadata": by(func(m *sandboxv1.UploadChunk_Metadata) (Upload, error) { return DecodeUpload(m, "") }),
	"DownloadFileRequest":  by(DecodeCodebaseFile), "DeleteFileRequest": by(DecodeCodebaseFile), "ListFilesRequest": by(DecodeListFiles),

	"CreateSandboxRequest": by(DecodeCreateSandbox), "ListSandboxesRequest": by(DecodeListSandboxes), "DestroySandboxRequest": by(DecodeDestroySandbox),
	"GetSandboxRequest": by(SandboxID), "StartSandboxRequest": by(SandboxID), "StopSandboxRequest": by(SandboxID), "GetStatsRequest": by(SandboxID),
	"ListExecsRequest": by(SandboxID), "ListSessionsRequest": by(SandboxID), "GetSessionRequest": by(SessionID), "DestroySessionRequest": by(SessionID),

	"ExecRequest": by(DecodeExec), "CreateSessionRequest": by(DecodeCreateSession), "SessionExecRequest": by(DecodeSessionExec),
	"AttachRequest.Start": by(DecodeAttachStart), "AttachRequest.Resume": by(DecodeAttachResume),
	"AttachRequest.WindowSize": by(func(m *sandboxv1.AttachRequest_WindowSize) (WindowSize, error) { return DecodeWindowSize("resize", m) }),

	"ListCommitsRequest": by(DecodeListCommits), "ApplyCommitsRequest": by(DecodeApplyCommits),
	"DiffRequest": by(DecodeDiff), "ApplyRequest": by(DecodeApply), "ReadChangesRequest": by(DecodeReadChanges), "DiscardRequest": by(DecodeDiscard),
	"SetPolicyRequest": by(DecodeSetPolicy), "ChangeHostsRequest": by(DecodeChangeHosts), "UpdateSandboxRequest": by(DecodeUpdateSandbox),
	"ListAsksRequest": by(DecodeListAsks), "AnswerAskRequest": by(DecodeAnswerAsk), "GrantPathRequest": by(DecodeGrantPath),
	"ExplainPolicyRequest": by(DecodeExplainPolicy),
	"ListViewRequest":      by(DecodeListView), "ReadViewRequest": by(DecodeReadView), "WatchViewRequest": by(DecodeWatchView),
	"ListTransactionsRequest": by(DecodeListTransactions), "UndoRequest": by(DecodeUndo),
	"LockPathsRequest": by(DecodeLockPaths), "UnlockPathsRequest": by(DecodeUnlockPaths), "ListLocksRequest": by(SandboxID),
	"PostMessageRequest": by(DecodePostMessage), "ReadMessagesRequest": by(DecodeReadMessages), "WatchMessagesRequest": by(DecodeWatchMessages), "GetBoardRequest": by(SandboxID),
	"ExportChangesRequest": by(DecodeExportChanges), "QuerySandboxRequest": by(DecodeQuerySandbox),
	"AuditRequest": by(DecodeAudit), "LogsRequest": by(DecodeLogs),

	"CreateSnapshotRequest": by(DecodeCreateSnapshot), "ListSnapshotsRequest": by(SandboxID),
	"DeleteSnapshotRequest":  by(func(r *sandboxv1.DeleteSnapshotRequest) (SnapshotRef, error) { return DecodeSnapshotRef(r) }),
	"RestoreSnapshotRequest": by(func(r *sandboxv1.RestoreSnapshotRequest) (SnapshotRef, error) { return DecodeSnapshotRef(r) }),
	"ForkSandboxRequest":     by(DecodeForkSandbox), "CompareStatesRequest": by(DecodeCompareStates), "MergeSandboxRequest": by(DecodeMergeSandbox),
}

// notRead are the fields of requests that no converter reads, and why.
var notRead = map[string]string{
	"UploadChunk.metadata": "selects UploadChunk.Metadata", "UploadChunk.data": "bytes, which are copied",
	"AttachRequest.start": "selects AttachRequest.Start", "AttachRequest.resume": "selects AttachRequest.Resume",
	"AttachRequest.resize": "selects AttachRequest.WindowSize", "AttachRequest.signal": "selects DecodeSignal, see TestSignals",
	"AttachRequest.stdin": "bytes, which are copied", "AttachRequest.stdin_end": "has no value but true",
}

// meaningful are values of fields for which another text has no meaning.
var meaningful = map[protoreflect.Name]string{
	"codebase_id": "cb_0123456789abcdef", "sandbox_id": "sb_0123456789abcdef", "from_sandbox_id": "sb_fedcba9876543210", "session_id": "sess_0123456789abcdef",
	"transaction_id": "tx_0123456789abcdef",
	"git":            "clean:7", "user": "0", "home": "keep", "mount": "data", "events": "permission_denied",
	"allow_net": "example.com", "net_limits": "out=1M", "publish": "8080:3000", "grant": "example.com", "revoke": "example.com",
}

// makeMeaningful gives such fields their values, and limits that the kernel accepts. Of two fields
// that exclude each other one is cleared.
func makeMeaningful(m proto.Message) {
	d := m.ProtoReflect().Descriptor().Fields()
	for name, value := range meaningful {
		switch fd := d.ByName(name); {
		case fd == nil, fd.Kind() != protoreflect.StringKind:
		case fd.IsList():
			list := m.ProtoReflect().Mutable(fd).List()
			list.Truncate(0)
			list.Append(protoreflect.ValueOfString(value))
		default:
			m.ProtoReflect().Set(fd, protoreflect.ValueOfString(value))
		}
	}
	switch r := m.(type) {
	case *sandboxv1.CreateSandboxRequest:
		r.Resources = &sandboxv1.ResourceLimits{MemoryBytes: 1 << 30, CpuQuota: 1000, CpuShares: 2, PidsLimit: 1, DiskBytes: 1, DiskInodes: 1}
		r.Permissions[0].Permission = sandboxv1.Permission_PERMISSION_NONE
		for _, rule := range r.Permissions {
			rule.Keep = false
		}
		r.Mounts = r.Mounts[:1]
		m := r.Mounts[0]
		m.Source, m.Place, m.Name, m.Mode = "/data", "/mnt/data", "data", "" // the rules are its mode
		m.Rules[0].Permission = sandboxv1.Permission_PERMISSION_NONE
		r.AskTimeout = durationpb.New(time.Minute)
	case *sandboxv1.UpdateSandboxRequest:
		r.Resources = &sandboxv1.ResourceLimits{MemoryBytes: 1 << 30, CpuQuota: 1000, CpuShares: 2, PidsLimit: 1, DiskBytes: 1, DiskInodes: 1}
		r.Scratch, r.Clear = nil, []string{ListScratch}
		r.AskTimeout = durationpb.New(time.Minute)
	case *sandboxv1.SetPolicyRequest:
		for _, rule := range r.Permissions {
			rule.Keep = false
		}
	case *sandboxv1.ForkSandboxRequest:
		for _, rule := range r.Rules.Permissions {
			rule.Keep = false
		}
	case *sandboxv1.GrantPathRequest:
		r.Permission, r.Revoke = sandboxv1.Permission_PERMISSION_WRITE, false
	case *sandboxv1.ApplyRequest:
		r.Attest, r.OnConflict = false, sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_UNSPECIFIED
	case *sandboxv1.ListTransactionsRequest:
		r.CodebaseId = ""
	case *sandboxv1.UndoRequest:
		r.SandboxId = ""
	case *sandboxv1.ListAsksRequest:
		r.Wait = durationpb.New(time.Second)
	case *sandboxv1.UnlockPathsRequest:
		r.All = false
	case *sandboxv1.LockPathsRequest:
		r.Wait = durationpb.New(time.Second)
	case *sandboxv1.ReadMessagesRequest:
		r.Wait, r.Topic = durationpb.New(time.Second), "plan"
	case *sandboxv1.QuerySandboxRequest:
		r.Timeout = durationpb.New(time.Second)
	case *sandboxv1.AnswerAskRequest:
		r.Scope = sandboxv1.AskScope_ASK_SCOPE_SANDBOX
	case *sandboxv1.ExecRequest:
		r.StdinBytes = nil
	}
}

// eachField calls do for each field of a message and of the messages in it, with a copy of the
// whole in which only this field differs. at finds the message in the whole.
func eachField(whole proto.Message, at func(proto.Message) protoreflect.Message, do func(field string, other proto.Message)) {
	fields := at(whole).Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		other := proto.Clone(whole)
		switch m := at(other); {
		case m.Has(fd) && fd.Name() == "permission": // left out it means none
			m.Set(fd, protoreflect.ValueOfEnum(protoreflect.EnumNumber(sandboxv1.Permission_PERMISSION_VIEW)))
		case m.Has(fd):
			m.Clear(fd)
		case fd.IsList():
			m.Mutable(fd).List().Append((&filler{}).scalar(fd))
		default:
			m.Set(fd, (&filler{}).scalar(fd))
		}
		do(strings.TrimPrefix(string(fd.FullName()), "sandbox.v1."), other)
		if fd.Message() == nil || fd.IsMap() || wellKnown(fd.Message()) {
			continue
		}
		eachField(whole, func(w proto.Message) protoreflect.Message {
			if value := at(w).Get(fd); fd.IsList() {
				return value.List().Get(0).Message()
			}
			return at(w).Get(fd).Message()
		}, do)
	}
}

// apiFiles are the files of the API.
func apiFiles() []protoreflect.FileDescriptor {
	var all []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("sandbox.v1", func(file protoreflect.FileDescriptor) bool {
		all = append(all, file)
		return true
	})
	return all
}

// requestMessages are what clients send: the requests, and the messages in them that only they use.
func requestMessages() map[string]protoreflect.MessageDescriptor {
	all := map[string]protoreflect.MessageDescriptor{}
	for _, file := range apiFiles() {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				input := methods.Get(j).Input()
				for _, d := range append(messagesIn(input.Messages()), input) {
					all[strings.TrimPrefix(string(d.FullName()), "sandbox.v1.")] = d
				}
			}
		}
	}
	return all
}

// A field of a request that no converter reads would have no effect.
func TestEveryFieldOfARequestIsRead(t *testing.T) {
	unused, unsent := maps.Clone(notRead), maps.Clone(requests)
	for name, d := range requestMessages() {
		delete(unsent, name)
		convert := requests[name]
		if convert == nil {
			for i := range d.Fields().Len() {
				field := name + "." + string(d.Fields().Get(i).Name())
				if notRead[field] == "" {
					t.Errorf("%s: no converter reads it", field)
				}
				delete(unused, field)
			}
			continue
		}
		request := filledOf(d)
		makeMeaningful(request)
		want, err := convert(request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		eachField(request, proto.Message.ProtoReflect, func(field string, other proto.Message) {
			got, err := convert(other)
			if err == nil && reflect.DeepEqual(got, want) {
				t.Errorf("%s: the converter of %s does not read it", field, name)
			}
		})
	}
	for field := range unused {
		t.Errorf("notRead names %s, which is read or does not exist", field)
	}
	for name := range unsent {
		t.Errorf("requests names %s, which no call takes", name)
	}
}

// filledOf is filled for a message that is known by its descriptor.
func filledOf(d protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return filled(kind.New().Interface())
}

func TestSignals(t *testing.T) {
	for _, number := range []int32{-1, 0, 1, 9, 64, 65} {
		signal, err := DecodeSignal(number)
		if valid := number >= 1 && number <= 64; (err == nil) != valid || valid && int32(signal) != number {
			t.Errorf("signal %d is %d, error %v", number, signal, err)
		}
	}
}

// A page token of a diff has what the pages before showed, and where they ended.
func TestDiffTokens(t *testing.T) {
	digest := fmt.Sprintf("%064d", 7)
	for _, want := range []Diff{
		{Page: PageAfter{After: "/a:b"}},
		{Page: PageAfter{After: "/a:b"}, PageDigest: digest},
	} {
		got, err := DecodeDiff(&sandboxv1.DiffRequest{
			SandboxId: meaningful["sandbox_id"], PageToken: EncodeDiffToken(want.PageDigest, want.Page.After),
		})
		if err != nil || got.Page != want.Page || got.PageDigest != want.PageDigest {
			t.Errorf("got %+v, error %v, want %+v", got, err, want)
		}
	}
}

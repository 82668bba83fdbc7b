package gateway_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

// route is a request over REST, what the service gets of it, and what becomes of
// the service's answer.
type route struct {
	name         string
	method, path string
	body         string
	rpc          string
	want         proto.Message
	answer       proto.Message
	json         string
}

var moment = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 600e6, time.UTC))

const emptySandbox = `"id":"sb_1","codebaseId":"","permissions":[],"status":"SANDBOX_STATUS_UNSPECIFIED","labels":{},` +
	`"createdAt":null,"startedAt":null,"stoppedAt":null,"expiresAt":null,"runtime":"RUNTIME_TYPE_UNSPECIFIED","image":"",` +
	`"resources":null,"statusReason":"","name":"","ownerId":"","syncHeld":false,"sync":"SYNC_MODE_UNSPECIFIED","workspace":"","home":"","usage":null,"variables":[],"allowNet":[],"mounts":[],"scratch":[],"secrets":[],"netLimits":[],"publish":[],"publishAddress":"","askTimeout":null,"grants":[],"board":false,"git":"","unsavedBranches":"0"`

const emptyResult = `"stdout":"","stderr":"","exitCode":0,"duration":null,"stdoutBytes":"","stderrBytes":"",` +
	`"stdoutTruncated":false,"stderrTruncated":false,"conflicts":[],"conflictCount":"0","execId":"","denied":[],"deniedCount":"0","changed":[],"changedCount":"0","syncHeld":false,"keep":null`

var sandboxRoutes = []route{
	{
		name: "create a sandbox", method: "POST", path: "/v1/sandboxes", rpc: "CreateSandbox",
		body: `{"codebaseId":"cb_1","permissions":[{"pattern":"**","type":"PATTERN_TYPE_FILE","permission":"PERMISSION_READ","priority":7}],` +
			`"expiresIn":"90.5s","labels":{"a":"b"},"runtime":"RUNTIME_TYPE_DOCKER","image":"debian","resources":{"memoryBytes":"1048576","cpuQuota":50000}}`,
		want: &sandboxv1.CreateSandboxRequest{
			CodebaseId: "cb_1",
			Permissions: []*sandboxv1.PermissionRule{{
				Pattern: "**", Type: sandboxv1.PatternType_PATTERN_TYPE_FILE,
				Permission: sandboxv1.Permission_PERMISSION_READ, Priority: 7,
			}},
			ExpiresIn: durationpb.New(90*time.Second + 500*time.Millisecond),
			Labels:    map[string]string{"a": "b"}, Runtime: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER, Image: "debian",
			Resources: &sandboxv1.ResourceLimits{MemoryBytes: 1 << 20, CpuQuota: 50000},
		},
		answer: &sandboxv1.Sandbox{
			Id: "sb_1", CodebaseId: "cb_1", Status: sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING, CreatedAt: moment,
			Permissions: []*sandboxv1.PermissionRule{{Pattern: "**", Permission: sandboxv1.Permission_PERMISSION_READ}},
			Labels:      map[string]string{"a": "b"}, Runtime: sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP,
			Resources: &sandboxv1.ResourceLimits{MemoryBytes: 1 << 40},
		},
		json: `{"id":"sb_1","codebaseId":"cb_1","permissions":[{"pattern":"**","type":"PATTERN_TYPE_UNSPECIFIED","permission":"PERMISSION_READ","priority":0,"origin":"RULE_ORIGIN_UNSPECIFIED","own":false,"redact":"REDACT_FORMAT_UNSPECIFIED","substitute":"","keep":false,"keepKeys":[]}],` +
			`"status":"SANDBOX_STATUS_PENDING","labels":{"a":"b"},"createdAt":"2026-01-02T03:04:05.600Z","startedAt":null,"stoppedAt":null,"expiresAt":null,` +
			`"runtime":"RUNTIME_TYPE_BWRAP","image":"","resources":{"memoryBytes":"1099511627776","cpuQuota":"0","cpuShares":"0","pidsLimit":"0","diskBytes":"0","diskInodes":"0"},` +
			`"statusReason":"","name":"","ownerId":"","syncHeld":false,"sync":"SYNC_MODE_UNSPECIFIED","workspace":"","home":"","usage":null,"variables":[],"allowNet":[],"mounts":[],"scratch":[],"secrets":[],"netLimits":[],"publish":[],"publishAddress":"","askTimeout":null,"grants":[],"board":false,"git":"","unsavedBranches":"0"}`,
	},
	{
		name: "the other spelling, and a field that is not known", method: "POST", path: "/v1/sandboxes", rpc: "CreateSandbox",
		body:   `{"codebase_id":"cb_1","expires_in":"1s","colour":"red","resources":{"memory_bytes":5,"colour":{"type":"x"}}}`,
		want:   &sandboxv1.CreateSandboxRequest{CodebaseId: "cb_1", ExpiresIn: durationpb.New(time.Second), Resources: &sandboxv1.ResourceLimits{MemoryBytes: 5}},
		answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "no body is an empty request", method: "POST", path: "/v1/sandboxes", rpc: "CreateSandbox",
		want: &sandboxv1.CreateSandboxRequest{}, answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "get a sandbox", method: "GET", path: "/v1/sandboxes/sb_1", rpc: "GetSandbox",
		want: &sandboxv1.GetSandboxRequest{SandboxId: "sb_1"}, answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "list sandboxes", method: "GET", rpc: "ListSandboxes",
		path:   "/v1/sandboxes?codebase_id=cb_1&pageSize=5&page_token=t%2B%2F&labels[a]=b&labels[c]=d&colour=red",
		want:   &sandboxv1.ListSandboxesRequest{CodebaseId: "cb_1", PageSize: 5, PageToken: "t+/", Labels: map[string]string{"a": "b", "c": "d"}},
		answer: &sandboxv1.ListSandboxesResponse{Sandboxes: []*sandboxv1.Sandbox{{Id: "sb_1"}}, NextPageToken: "n"},
		json:   `{"sandboxes":[{` + emptySandbox + `}],"nextPageToken":"n"}`,
	},
	{
		name: "an empty list is there", method: "GET", path: "/v1/sandboxes", rpc: "ListSandboxes",
		want: &sandboxv1.ListSandboxesRequest{}, answer: &sandboxv1.ListSandboxesResponse{}, json: `{"sandboxes":[],"nextPageToken":""}`,
	},
	{
		name: "start a sandbox", method: "POST", path: "/v1/sandboxes/sb_1/start", rpc: "StartSandbox",
		want: &sandboxv1.StartSandboxRequest{SandboxId: "sb_1"}, answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "stop a sandbox", method: "POST", path: "/v1/sandboxes/sb_1/stop", rpc: "StopSandbox",
		want: &sandboxv1.StopSandboxRequest{SandboxId: "sb_1"}, answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "destroy a sandbox", method: "DELETE", path: "/v1/sandboxes/sb_1", rpc: "DestroySandbox",
		want: &sandboxv1.DestroySandboxRequest{SandboxId: "sb_1"}, answer: &sandboxv1.Empty{}, json: `{}`,
	},
	{
		name: "the path's id beats the body's", method: "POST", path: "/v1/sandboxes/sb_1/exec", rpc: "Exec",
		body:   `{"sandboxId":"sb_2","command":"cat","stdin":"in","env":{"A":"1"},"workdir":"/workspace/x","timeout":"2s"}`,
		want:   &sandboxv1.ExecRequest{SandboxId: "sb_1", Command: "cat", Stdin: "in", Env: map[string]string{"A": "1"}, Workdir: "/workspace/x", Timeout: durationpb.New(2 * time.Second)},
		answer: &sandboxv1.ExecResult{Stdout: "ö<\n", Stderr: "e", ExitCode: 3, Duration: durationpb.New(1500 * time.Millisecond)},
		json: `{"stdout":"ö<\n","stderr":"e","exitCode":3,"duration":"1.500s","stdoutBytes":"","stderrBytes":"",` +
			`"stdoutTruncated":false,"stderrTruncated":false,"conflicts":[],"conflictCount":"0","execId":"","denied":[],"deniedCount":"0","changed":[],"changedCount":"0","syncHeld":false,"keep":null}`,
	},
	{
		name: "create a session", method: "POST", path: "/v1/sandboxes/sb_1/sessions", rpc: "CreateSession",
		body:   `{"shell":"/bin/bash","env":{"A":"1"}}`,
		want:   &sandboxv1.CreateSessionRequest{SandboxId: "sb_1", Shell: "/bin/bash", Env: map[string]string{"A": "1"}},
		answer: &sandboxv1.Session{Id: "sess_1", SandboxId: "sb_1", Status: sandboxv1.SessionStatus_SESSION_STATUS_ACTIVE, Shell: "/bin/bash", CreatedAt: moment},
		json:   `{"id":"sess_1","sandboxId":"sb_1","status":"SESSION_STATUS_ACTIVE","shell":"/bin/bash","createdAt":"2026-01-02T03:04:05.600Z","closedAt":null}`,
	},
	{
		name: "get a session", method: "GET", path: "/v1/sessions/sess_1", rpc: "GetSession",
		want: &sandboxv1.GetSessionRequest{SessionId: "sess_1"}, answer: &sandboxv1.Session{},
		json: `{"id":"","sandboxId":"","status":"SESSION_STATUS_UNSPECIFIED","shell":"","createdAt":null,"closedAt":null}`,
	},
	{
		name: "list sessions", method: "GET", path: "/v1/sandboxes/sb_1/sessions", rpc: "ListSessions",
		want: &sandboxv1.ListSessionsRequest{SandboxId: "sb_1"}, answer: &sandboxv1.ListSessionsResponse{}, json: `{"sessions":[]}`,
	},
	{
		name: "destroy a session", method: "DELETE", path: "/v1/sessions/sess_1", rpc: "DestroySession",
		want: &sandboxv1.DestroySessionRequest{SessionId: "sess_1"}, answer: &sandboxv1.Empty{}, json: `{}`,
	},
	{
		name: "exec in a session", method: "POST", path: "/v1/sessions/sess_1/exec", rpc: "SessionExec",
		body:   `{"command":"ls","timeout":"0.25s"}`,
		want:   &sandboxv1.SessionExecRequest{SessionId: "sess_1", Command: "ls", Timeout: durationpb.New(250 * time.Millisecond)},
		answer: &sandboxv1.ExecResult{}, json: `{` + emptyResult + `}`,
	},
}

var codebaseRoutes = []route{
	{
		name: "create a codebase", method: "POST", path: "/v1/codebases", rpc: "CreateCodebase",
		body:   `{"name":"n","ownerId":"o"}`,
		want:   &sandboxv1.CreateCodebaseRequest{Name: "n", OwnerId: "o"},
		answer: &sandboxv1.Codebase{Id: "cb_1", Name: "n", OwnerId: "o", Size: 1 << 53, FileCount: 4, CreatedAt: moment, UpdatedAt: moment},
		json: `{"id":"cb_1","name":"n","ownerId":"o","size":"9007199254740992","fileCount":4,"createdAt":"2026-01-02T03:04:05.600Z",` +
			`"updatedAt":"2026-01-02T03:04:05.600Z","linked":false}`,
	},
	{
		name: "get a codebase", method: "GET", path: "/v1/codebases/cb_1", rpc: "GetCodebase",
		want: &sandboxv1.GetCodebaseRequest{CodebaseId: "cb_1"}, answer: &sandboxv1.Codebase{},
		json: `{"id":"","name":"","ownerId":"","size":"0","fileCount":0,"createdAt":null,"updatedAt":null,"linked":false}`,
	},
	{
		name: "list codebases", method: "GET", path: "/v1/codebases?ownerId=o&page_size=2", rpc: "ListCodebases",
		want: &sandboxv1.ListCodebasesRequest{OwnerId: "o", PageSize: 2}, answer: &sandboxv1.ListCodebasesResponse{},
		json: `{"codebases":[],"nextPageToken":""}`,
	},
	{
		name: "delete a codebase", method: "DELETE", path: "/v1/codebases/cb_1", rpc: "DeleteCodebase",
		want: &sandboxv1.DeleteCodebaseRequest{CodebaseId: "cb_1"}, answer: &sandboxv1.Empty{}, json: `{}`,
	},
	{
		name: "list files", method: "GET", path: "/v1/codebases/cb_1/files?path=a/b&recursive=true", rpc: "ListFiles",
		want:   &sandboxv1.ListFilesRequest{CodebaseId: "cb_1", Path: "a/b", Recursive: true},
		answer: &sandboxv1.ListFilesResponse{Files: []*sandboxv1.FileInfo{{Path: "a/b", Name: "b", Size: 3, Mode: 0o100644, ModifiedAt: moment}}},
		json:   `{"files":[{"path":"a/b","name":"b","isDir":false,"size":"3","modifiedAt":"2026-01-02T03:04:05.600Z","mode":33188,"symlinkTarget":""}]}`,
	},
	{
		name: "the path's id beats the query's", method: "GET", path: "/v1/codebases/cb_1/files?codebase_id=cb_2&codebaseId=cb_3", rpc: "ListFiles",
		want: &sandboxv1.ListFilesRequest{CodebaseId: "cb_1"}, answer: &sandboxv1.ListFilesResponse{}, json: `{"files":[]}`,
	},
	{
		name: "link a codebase", method: "POST", path: "/v1/codebases:link", rpc: "LinkCodebase",
		body: `{"name":"n","ownerId":"o","path":"/srv","ignoreFiles":true}`,
		want: &sandboxv1.LinkCodebaseRequest{Name: "n", OwnerId: "o", Path: "/srv", IgnoreFiles: true}, answer: &sandboxv1.Codebase{Linked: true},
		json: `{"id":"","name":"","ownerId":"","size":"0","fileCount":0,"createdAt":null,"updatedAt":null,"linked":true}`,
	},
	{
		name: "delete a file", method: "DELETE", path: "/v1/codebases/cb_1/files/a/b%20c%25:x%5Cxff", rpc: "DeleteFile",
		want: &sandboxv1.DeleteFileRequest{CodebaseId: "cb_1", FilePath: `a/b c%:x\xff`}, answer: &sandboxv1.Empty{}, json: `{}`,
	},
}

var additionRoutes = []route{
	{
		name: "diff", method: "GET", path: "/v1/sandboxes/sb_1/diff?paths=a&paths=b&names_only=true&pageSize=3", rpc: "Diff",
		want:   &sandboxv1.DiffRequest{SandboxId: "sb_1", Paths: []string{"a", "b"}, NamesOnly: true, PageSize: 3},
		answer: &sandboxv1.DiffResponse{}, json: `{"files":[],"nextPageToken":"","digest":"","groups":[]}`,
	},
	{
		name: "apply", method: "POST", path: "/v1/sandboxes/sb_1/apply", rpc: "Apply", body: `{"paths":["a"],"dryRun":true}`,
		want:   &sandboxv1.ApplyRequest{SandboxId: "sb_1", Paths: []string{"a"}, DryRun: true},
		answer: &sandboxv1.ApplyResponse{ResultCount: 2}, json: `{"results":[],"resultCount":"2","appliedCount":"0","writtenAgain":[],"transactionId":"","commit":"","statement":""}`,
	},
	{
		name: "discard", method: "POST", path: "/v1/sandboxes/sb_1/discard", rpc: "Discard", body: `{"paths":["a"]}`,
		want:   &sandboxv1.DiscardRequest{SandboxId: "sb_1", Paths: []string{"a"}},
		answer: &sandboxv1.DiscardResponse{PathCount: 1}, json: `{"paths":[],"pathCount":"1","writtenAgain":[]}`,
	},
	{
		name: "set a policy", method: "PUT", path: "/v1/sandboxes/sb_1/policy", rpc: "SetPolicy", body: `{"permissions":[{"pattern":"x","permission":4}]}`,
		want:   &sandboxv1.SetPolicyRequest{SandboxId: "sb_1", Permissions: []*sandboxv1.PermissionRule{{Pattern: "x", Permission: sandboxv1.Permission_PERMISSION_WRITE}}},
		answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "change hosts", method: "POST", path: "/v1/sandboxes/sb_1/hosts", rpc: "ChangeHosts", body: `{"grant":["a.example"],"grantFor":"60s","revoke":["b.example"]}`,
		want:   &sandboxv1.ChangeHostsRequest{SandboxId: "sb_1", Grant: []string{"a.example"}, GrantFor: durationpb.New(time.Minute), Revoke: []string{"b.example"}},
		answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "update a sandbox", method: "PATCH", path: "/v1/sandboxes/sb_1", rpc: "UpdateSandbox", body: `{"resources":{"pidsLimit":"9"},"netLimits":["out=1M"],"clear":["secrets"]}`,
		want:   &sandboxv1.UpdateSandboxRequest{SandboxId: "sb_1", Resources: &sandboxv1.ResourceLimits{PidsLimit: 9}, NetLimits: []string{"out=1M"}, Clear: []string{"secrets"}},
		answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "grant a path", method: "POST", path: "/v1/sandboxes/sb_1/grants", rpc: "GrantPath", body: `{"path":"a","permission":"PERMISSION_READ","grantFor":"60s"}`,
		want:   &sandboxv1.GrantPathRequest{SandboxId: "sb_1", Path: "a", Permission: sandboxv1.Permission_PERMISSION_READ, GrantFor: durationpb.New(time.Minute)},
		answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
	{
		name: "list asks", method: "GET", path: "/v1/sandboxes/sb_1/asks?wait=30s&version=0a", rpc: "ListAsks",
		want:   &sandboxv1.ListAsksRequest{SandboxId: "sb_1", Wait: durationpb.New(30 * time.Second), Version: "0a"},
		answer: &sandboxv1.ListAsksResponse{Version: "0b"}, json: `{"asks":[],"version":"0b"}`,
	},
	{
		name: "lock paths", method: "POST", path: "/v1/sandboxes/sb_1/locks", rpc: "LockPaths", body: `{"paths":["a"],"wait":"2s"}`,
		want:   &sandboxv1.LockPathsRequest{SandboxId: "sb_1", Paths: []string{"a"}, Wait: durationpb.New(2 * time.Second)},
		answer: &sandboxv1.Empty{}, json: `{}`,
	},
	{
		name: "unlock paths", method: "POST", path: "/v1/sandboxes/sb_1/locks:release", rpc: "UnlockPaths", body: `{"all":true}`,
		want:   &sandboxv1.UnlockPathsRequest{SandboxId: "sb_1", All: true},
		answer: &sandboxv1.Empty{}, json: `{}`,
	},
	{
		name: "list locks", method: "GET", path: "/v1/sandboxes/sb_1/locks", rpc: "ListLocks",
		want:   &sandboxv1.ListLocksRequest{SandboxId: "sb_1"},
		answer: &sandboxv1.ListLocksResponse{}, json: `{"locks":[]}`,
	},
	{
		name: "post a message", method: "POST", path: "/v1/sandboxes/sb_1/messages", rpc: "PostMessage", body: `{"topic":"t","text":"x","asAgent":true}`,
		want:   &sandboxv1.PostMessageRequest{SandboxId: "sb_1", Topic: "t", Text: "x", AsAgent: true},
		answer: &sandboxv1.PostMessageResponse{Seq: 7}, json: `{"seq":"7"}`,
	},
	{
		name: "read messages", method: "GET", path: "/v1/sandboxes/sb_1/messages?after=3&topic=t&limit=2&wait=30s", rpc: "ReadMessages",
		want:   &sandboxv1.ReadMessagesRequest{SandboxId: "sb_1", After: 3, Topic: "t", Limit: 2, Wait: durationpb.New(30 * time.Second)},
		answer: &sandboxv1.ReadMessagesResponse{Next: 3}, json: `{"messages":[],"next":"3","lost":"0"}`,
	},
	{
		name: "query a sandbox", method: "POST", path: "/v1/sandboxes/sb_1/sql", body: `{"statement":"select 1","maxRows":3}`, rpc: "QuerySandbox",
		want:   &sandboxv1.QuerySandboxRequest{SandboxId: "sb_1", Statement: "select 1", MaxRows: 3},
		answer: &sandboxv1.QuerySandboxResponse{Columns: []string{"1"}}, json: `{"columns":["1"],"rows":[],"more":false}`,
	},
	{
		name: "list the commits", method: "GET", path: "/v1/sandboxes/sb_1/commits", rpc: "ListCommits",
		want:   &sandboxv1.ListCommitsRequest{SandboxId: "sb_1"},
		answer: &sandboxv1.ListCommitsResponse{SourceCommit: "1"}, json: `{"commits":[],"nextPageToken":"","sourceCommit":"1"}`,
	},
	{
		name: "apply the commits", method: "POST", path: "/v1/sandboxes/sb_1/commits", body: `{"toBranch":"b"}`, rpc: "ApplyCommits",
		want:   &sandboxv1.ApplyCommitsRequest{SandboxId: "sb_1", ToBranch: "b"},
		answer: &sandboxv1.ApplyCommitsResponse{Commit: "1"}, json: `{"base":"","commit":"1","commits":[],"commitCount":"0","leftOut":[],"leftOutCount":"0","refused":[],"refusedCount":"0","lostSignatures":"0","branch":"","checkedOut":false,"transaction":""}`,
	},
	{
		name: "get the board", method: "GET", path: "/v1/sandboxes/sb_1/board", rpc: "GetBoard",
		want:   &sandboxv1.GetBoardRequest{SandboxId: "sb_1"},
		answer: &sandboxv1.Board{}, json: `{"members":[],"topics":[]}`,
	},
	{
		name: "answer an ask", method: "POST", path: "/v1/sandboxes/sb_1/asks/7", rpc: "AnswerAsk", body: `{"allow":true,"scope":"ASK_SCOPE_SANDBOX"}`,
		want:   &sandboxv1.AnswerAskRequest{SandboxId: "sb_1", AskId: "7", Allow: true, Scope: sandboxv1.AskScope_ASK_SCOPE_SANDBOX},
		answer: &sandboxv1.Empty{}, json: `{}`,
	},
	{
		name: "explain a policy", method: "GET", path: "/v1/sandboxes/sb_1/policy:explain?path=a/b", rpc: "ExplainPolicy",
		want:   &sandboxv1.ExplainPolicyRequest{SandboxId: "sb_1", Path: "a/b"},
		answer: &sandboxv1.ExplainPolicyResponse{RuleIndex: -1}, json: `{"permission":"PERMISSION_UNSPECIFIED","rule":null,"ruleIndex":-1,"reason":"","traversable":false,"ancestor":"","matches":[]}`,
	},
	{
		name: "list a view", method: "GET", path: "/v1/sandboxes/sb_1/view?path=a/b&itself=true&pageSize=3&page_token=a", rpc: "ListView",
		want:   &sandboxv1.ListViewRequest{SandboxId: "sb_1", Path: "a/b", Itself: true, PageSize: 3, PageToken: "a"},
		answer: &sandboxv1.ListViewResponse{Entries: []*sandboxv1.ViewEntry{{Path: "a/b", Size: 3}}},
		json: `{"entries":[{"path":"a/b","permission":"PERMISSION_UNSPECIFIED","mode":0,"size":"3","modifiedAt":null,` +
			`"origin":"VIEW_ORIGIN_UNSPECIFIED","symlinkTarget":""}],"nextPageToken":""}`,
	},
	{
		name: "stats, of which what is not counted is absent", method: "GET", path: "/v1/sandboxes/sb_1/stats", rpc: "GetStats",
		want: &sandboxv1.GetStatsRequest{SandboxId: "sb_1"}, answer: &sandboxv1.Stats{MemoryBytes: proto.Int64(5)},
		json: `{"memoryBytes":"5","cpuTime":null,"deltaBytes":"0","deltaInodes":"0","execs":0,"sessions":0,"oomKills":"0","pidsMaxHits":"0","viewRequests":{}}`,
	},
	{
		name: "detached commands, of which one runs", method: "GET", path: "/v1/sandboxes/sb_1/execs", rpc: "ListExecs",
		want:   &sandboxv1.ListExecsRequest{SandboxId: "sb_1"},
		answer: &sandboxv1.ListExecsResponse{Execs: []*sandboxv1.DetachedExec{{ExecId: "exec-1", Argv: []string{"a"}}}},
		json:   `{"execs":[{"execId":"exec-1","argv":["a"],"sessionId":"","startedAt":null}]}`,
	},
	{
		name: "an empty id reaches the service, which says what is missing", method: "POST", path: "/v1/sandboxes//exec", rpc: "Exec",
		want: &sandboxv1.ExecRequest{}, answer: &sandboxv1.ExecResult{}, json: `{` + emptyResult + `}`,
	},
	{
		name: "an escaped id is unescaped once", method: "GET", path: "/v1/sandboxes/a%252Fb%20c", rpc: "GetSandbox",
		want: &sandboxv1.GetSandboxRequest{SandboxId: "a%2Fb c"}, answer: &sandboxv1.Sandbox{Id: "sb_1"}, json: `{` + emptySandbox + `}`,
	},
}

func TestRoutes(t *testing.T) {
	for _, routes := range [][]route{sandboxRoutes, codebaseRoutes, additionRoutes} {
		for _, c := range routes {
			t.Run(c.rpc+"/"+c.name, func(t *testing.T) {
				f := &fake{answer: c.answer}
				got := do(t, c.method, serve(t, f, gateway.Options{})+c.path, c.body, header("Authorization", "Bearer afs_x"))
				if got.status != http.StatusOK {
					t.Fatalf("status %d: %s", got.status, got.body)
				}
				call := f.only(t)
				if _, rpc, _ := strings.Cut(strings.TrimPrefix(call.method, "/"), "/"); rpc != c.rpc {
					t.Errorf("call of %s, want %s", rpc, c.rpc)
				}
				if diff := cmp.Diff(c.want, call.requests[0], protocmp.Transform()); diff != "" {
					t.Errorf("the request differs (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"Bearer afs_x"}, call.metadata["authorization"]); diff != "" {
					t.Errorf("the metadata authorization differs (-want +got):\n%s", diff)
				}
				if text := compact(t, got.body); text != c.json {
					t.Errorf("JSON:\n%s\nwant:\n%s", text, c.json)
				}
				names := slices.Sorted(maps.Keys(got.header))
				if diff := cmp.Diff([]string{"Cache-Control", "Content-Length", "Content-Type", "Date", "X-Content-Type-Options"}, names); diff != "" {
					t.Errorf("headers of the answer (-want +got):\n%s", diff)
				}
				if kind := got.header.Get("Content-Type"); kind != "application/json" {
					t.Errorf("Content-Type %q", kind)
				}
			})
		}
	}
}

// compact removes the spaces that protojson varies.
func compact(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return b.String()
}

// Every method of the services that has a route is in the tables above or in the
// tests of streams: a new one cannot be forgotten.
func TestEveryMethodHasARoute(t *testing.T) {
	byHand := strings.Fields("ExecStream SessionExecStream Audit Logs UploadFiles DownloadFile ReadView WatchView WatchMessages ExportChanges")
	// They need more than one direction at once, or carry many files: gRPC only.
	without := strings.Fields("Attach UploadTree ReadChanges")
	tested := map[string]bool{}
	for _, rpc := range append(byHand, without...) {
		tested[rpc] = true
	}
	for _, routes := range [][]route{sandboxRoutes, codebaseRoutes, additionRoutes} {
		for _, c := range routes {
			tested[c.rpc] = true
		}
	}
	for _, file := range []protoreflect.FileDescriptor{sandboxv1.File_sandbox_v1_sandbox_proto, sandboxv1.File_sandbox_v1_codebase_proto, sandboxv1.File_sandbox_v1_board_proto, sandboxv1.File_sandbox_v1_export_proto} {
		services := file.Services()
		for i := range services.Len() {
			methods := services.Get(i).Methods()
			for j := range methods.Len() {
				if name := string(methods.Get(j).Name()); !tested[name] {
					t.Errorf("%s has no test of its route", name)
				}
			}
		}
	}
}

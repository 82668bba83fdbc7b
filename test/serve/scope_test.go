package serve_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/test/wire"
)

// needed is the scope of each call, as docs/server.md describes it.
var needed = map[store.Scopes]string{
	store.ScopeRead: "GetCodebase ListCodebases DownloadFile ListFiles GetSandbox ListSandboxes GetSession ListSessions Diff ExplainPolicy ListView ReadView " +
		"WatchView Audit Logs GetStats ListExecs ReadChanges ListAsks ListLocks ReadMessages WatchMessages GetBoard ListSnapshots CompareStates ListTransactions ExportChanges QuerySandbox ListCommits",
	store.ScopeExec:   "StartSandbox StopSandbox Exec ExecStream CreateSession DestroySession SessionExec SessionExecStream Attach LockPaths UnlockPaths PostMessage CreateSnapshot",
	store.ScopeManage: "CreateCodebase DeleteCodebase UploadFiles LinkCodebase UploadTree DeleteFile CreateSandbox DestroySandbox SetPolicy ChangeHosts UpdateSandbox GrantPath AnswerAsk ForkSandbox",
	store.ScopeApply:  "Apply Discard RestoreSnapshot DeleteSnapshot MergeSandbox Undo Redo ApplyCommits",
}

func TestEveryCallAsksWhoCalls(t *testing.T) {
	s := start(t, withREST)
	mine := s.things()
	nobody, stranger := s.facesOf(""), s.facesOf("afs_"+strings.Repeat("0", 64))
	holders := map[store.Scopes]faces{}
	for scope := range needed {
		holders[scope] = s.facesOf(s.tokenOf("me", store.AllScopes&^scope))
	}
	known := 0
	for _, call := range wire.Calls() {
		_, jsonName, id := mine.idOf(call)
		request := withID(call, jsonName, id)
		nobody.refused(t, call, request, codes.Unauthenticated, "Bearer")
		stranger.refused(t, call, request, codes.Unauthenticated)
		for scope, names := range needed {
			for name := range strings.FieldsSeq(names) {
				if name == string(call.Name()) {
					known++
					holders[scope].refused(t, call, request, codes.PermissionDenied, scope.String())
				}
			}
		}
	}
	if all := len(wire.Calls()); known != all {
		t.Errorf("the scope of %d of %d calls is known", known, all)
	}
	if got := s.exec(mine.sandbox, "cat f d/g"); got != "content\nmore\n" {
		t.Errorf("afterwards the files are %q", got)
	}
}

package service_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
	"github.com/agentfense/agentfense/internal/server/store"
)

// received is an export as a client receives it.
type received struct {
	summary *sandboxv1.ExportSummary
	leftOut []string
	data    []byte
}

// export receives an export.
func (w *world) export(ctx context.Context, id string, format sandboxv1.ExportFormat) (got received, err error) {
	w.t.Helper()
	return w.exportOf(ctx, &sandboxv1.ExportChangesRequest{SandboxId: id, Format: format})
}

func (w *world) exportOf(ctx context.Context, r *sandboxv1.ExportChangesRequest) (got received, err error) {
	w.t.Helper()
	stream, err := sandboxv1.NewExportServiceClient(w.conn).ExportChanges(ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		switch m := m.Message.(type) {
		case *sandboxv1.ExportChangesResponse_Summary:
			got.summary = m.Summary
		case *sandboxv1.ExportChangesResponse_LeftOut:
			got.leftOut = append(got.leftOut, m.LeftOut.Path)
		case *sandboxv1.ExportChangesResponse_Data:
			got.data = append(got.data, m.Data...)
		}
	}
}

// stored lists what is left of exports in the state directory.
func (w *world) stored() []string {
	w.t.Helper()
	left, err := os.ReadDir(filepath.Join(w.home.Dir(), "exports"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	return names
}

// until waits until a condition holds; the test ends by its own time-out.
func until(is func() bool) {
	for !is() {
	}
}

func (w *world) query(ctx context.Context, r *sandboxv1.QuerySandboxRequest) (*sandboxv1.QuerySandboxResponse, error) {
	return sandboxv1.NewExportServiceClient(w.conn).QuerySandbox(ctx, r)
}

// An export has the summary, what is left out, and the file, without paths of the server's host.
func TestExport(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	if err := w.upload(ctx, cb, "f", "old\n"); err != nil {
		t.Fatal(err)
	}
	sb := w.sandbox(ctx, cb)
	w.exec(ctx, sb, "echo new > f; mkdir d e; echo more > d/g")
	for format, begin := range map[sandboxv1.ExportFormat]string{
		sandboxv1.ExportFormat_EXPORT_FORMAT_UNSPECIFIED: "SQLite format 3\x00",
		sandboxv1.ExportFormat_EXPORT_FORMAT_TAR:         "",
		sandboxv1.ExportFormat_EXPORT_FORMAT_OCI:         "oci-layout",
		sandboxv1.ExportFormat_EXPORT_FORMAT_PATCH:       "diff --git ",
	} {
		got, err := w.export(ctx, sb, format)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		wantLeft, wantEntries := []string(nil), int64(3)
		if format == sandboxv1.ExportFormat_EXPORT_FORMAT_PATCH {
			wantLeft, wantEntries = []string{"e"}, 2
		}
		if strings.Join(got.leftOut, " ") != strings.Join(wantLeft, " ") || got.summary.LeftOut != int64(len(wantLeft)) || got.summary.Entries != wantEntries {
			t.Errorf("%s: %v, left out %q", format, got.summary, got.leftOut)
		}
		if got.summary.SizeBytes != int64(len(got.data)) || !bytes.HasPrefix(got.data, []byte(begin)) || !bytes.Contains(got.data, []byte("new\n")) {
			t.Errorf("%s: %d of %d bytes: %.30q", format, len(got.data), got.summary.SizeBytes, got.data)
		}
		if bytes.Contains(got.data, []byte(w.home.Dir())) {
			t.Errorf("%s has a path of the server's host", format)
		}
	}
	if left := w.stored(); left != nil {
		t.Errorf("the server keeps %q", left)
	}
}

// An export of a mount has the changes of the mount alone, as long as its source may be mounted.
func TestExportOfAMount(t *testing.T) {
	dir := tree(t, "data/f=old\n")
	roots := []config.MountRoot{{Path: dir + "/data", Writable: true}}
	w := newWorld(t, func(c *config.Config) { manual(c); c.Mounts.Roots = roots })
	ctx := t.Context()
	made, err := w.sandboxes.CreateSandbox(ctx, mountOf(w.codebase(ctx, "me"), &sandboxv1.Mount{Source: dir + "/data", Place: "/data", Mode: "cow"}))
	if err != nil {
		t.Fatal(err)
	}
	w.start(ctx, made.Id)
	w.exec(ctx, made.Id, "echo mounted > /data/f; echo workspace > w")
	for format := range sandboxv1.ExportFormat_name {
		r := &sandboxv1.ExportChangesRequest{SandboxId: made.Id, Mount: "data", Format: sandboxv1.ExportFormat(format)}
		got, err := w.exportOf(ctx, r)
		if err != nil || got.summary.Entries != 1 || !bytes.Contains(got.data, []byte("mounted\n")) || bytes.Contains(got.data, []byte("workspace\n")) {
			t.Errorf("%s: %v, %v", r.Format, got.summary, err)
		}
		if bytes.Contains(got.data, []byte(w.home.Dir())) {
			t.Errorf("%s has a path of the server's host", r.Format)
		}
	}
	r := &sandboxv1.ExportChangesRequest{SandboxId: made.Id, Mount: "other"}
	_, err = w.exportOf(ctx, r)
	wantCode(t, "a mount that is not there", err, codes.NotFound)
	roots[0].Owners = []string{"other"}
	r.Mount = "data"
	_, err = w.exportOf(ctx, r)
	wantCode(t, "a source that its owner may no longer mount", err, codes.PermissionDenied)
}

func TestExportAndQueryAskWhoCalls(t *testing.T) {
	w := newWorld(t, manual)
	mine := w.as("me", store.AllScopes)
	sb := w.sandbox(mine, w.codebase(mine, "me"))
	w.exec(mine, sb, "echo x > f")
	for name, c := range map[string]struct {
		ctx  context.Context
		want codes.Code
	}{
		"another owner":          {w.as("you", store.AllScopes), codes.NotFound},
		"without the scope read": {w.as("me", store.AllScopes&^store.ScopeRead), codes.PermissionDenied},
		"with the scope read":    {w.as("me", store.ScopeRead), codes.OK},
	} {
		_, err := w.export(c.ctx, sb, sandboxv1.ExportFormat_EXPORT_FORMAT_TAR)
		wantCode(t, "an export "+name, err, c.want)
		_, err = w.query(c.ctx, &sandboxv1.QuerySandboxRequest{SandboxId: sb, Statement: "select 1"})
		wantCode(t, "a query "+name, err, c.want)
	}
}

func TestExportIsBounded(t *testing.T) {
	w := newWorld(t, manual)
	ctx := w.as("me", store.AllScopes)
	sb := w.sandbox(ctx, w.codebase(ctx, "me"))
	w.exec(ctx, sb, "truncate -s 5G sparse")
	for _, format := range []sandboxv1.ExportFormat{sandboxv1.ExportFormat_EXPORT_FORMAT_TAR, sandboxv1.ExportFormat_EXPORT_FORMAT_OCI} {
		_, err := w.export(ctx, sb, format)
		wantCode(t, format.String()+" of a huge file", err, codes.ResourceExhausted)
	}
	_, err := w.export(ctx, sb, 99)
	wantCode(t, "an unknown format", err, codes.InvalidArgument)
	if left := w.stored(); left != nil {
		t.Errorf("the server keeps %q", left)
	}
}

// A client that does not read, and then disconnects, uses one of its owner's exports and leaves no
// file.
func TestAnExportEndsWithItsClient(t *testing.T) {
	w := newWorld(t, manual)
	mine := w.as("me", store.AllScopes)
	sb := w.sandbox(mine, w.codebase(mine, "me"))
	w.exec(mine, sb, "head -c 20M /dev/zero > big")
	for range 2 {
		ctx, cancel := context.WithCancel(mine)
		defer cancel()
		stream, err := sandboxv1.NewExportServiceClient(w.conn).ExportChanges(ctx, &sandboxv1.ExportChangesRequest{SandboxId: sb, Format: sandboxv1.ExportFormat_EXPORT_FORMAT_TAR})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		if left := w.stored(); left != nil {
			t.Errorf("while it is sent, the server has %q", left)
		}
		defer until(func() bool {
			cancel()
			_, err := w.export(mine, sb, sandboxv1.ExportFormat_EXPORT_FORMAT_TAR)
			return err == nil
		})
	}
	_, err := w.export(mine, sb, sandboxv1.ExportFormat_EXPORT_FORMAT_TAR)
	wantCode(t, "a third export", err, codes.ResourceExhausted)
	your := w.as("you", store.AllScopes)
	other := w.sandbox(your, w.codebase(your, "you"))
	_, err = w.export(your, other, sandboxv1.ExportFormat_EXPORT_FORMAT_TAR)
	wantCode(t, "an export of another owner", err, codes.OK)
}

func TestQuery(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	sb := w.sandbox(ctx, w.codebase(ctx, "me"))
	w.exec(ctx, sb, "echo x > f")
	got, err := w.query(ctx, &sandboxv1.QuerySandboxRequest{
		SandboxId: sb, MaxRows: 1, Statement: "select path, size, 1.5 as r, null as n, x'00ff' as b, cast(x'ff' as text) as t from changes union all values (1,2,3,4,5,6)",
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "path size r n b t"; strings.Join(got.Columns, " ") != want || len(got.Rows) != 1 || !got.More {
		t.Fatalf("%v", got)
	}
	v := got.Rows[0].Values
	if v[0].GetText() != "/f" || v[1].GetInteger() != 2 || v[2].GetReal() != 1.5 || v[3].GetValue() != nil || string(v[4].GetBlob()) != "\x00\xff" || string(v[5].GetTextBytes()) != "\xff" {
		t.Errorf("%v", v)
	}
	const endless = "with recursive t(n) as (values (1) union all select n + 1 from t) select count(*) from t"
	for name, c := range map[string]struct {
		r    *sandboxv1.QuerySandboxRequest
		want codes.Code
	}{
		"that writes":      {&sandboxv1.QuerySandboxRequest{Statement: "delete from changes"}, codes.InvalidArgument},
		"with a mistake":   {&sandboxv1.QuerySandboxRequest{Statement: "select missing from changes"}, codes.InvalidArgument},
		"of too many rows": {&sandboxv1.QuerySandboxRequest{Statement: "select 1", MaxRows: 1_000_001}, codes.InvalidArgument},
		"of minus one row": {&sandboxv1.QuerySandboxRequest{Statement: "select 1", MaxRows: -1}, codes.InvalidArgument},
		"that may last":    {&sandboxv1.QuerySandboxRequest{Statement: "select 1", Timeout: durationpb.New(61e9)}, codes.InvalidArgument},
		"without an end":   {&sandboxv1.QuerySandboxRequest{Statement: endless, Timeout: durationpb.New(1e8)}, codes.DeadlineExceeded},
		"of much memory":   {&sandboxv1.QuerySandboxRequest{Statement: "select zeroblob(5000000)"}, codes.InvalidArgument},
	} {
		c.r.SandboxId = sb
		_, err := w.query(ctx, c.r)
		wantCode(t, "a query "+name, err, c.want)
	}
}

// An owner has not too many queries that run or wait.
func TestAnOwnerHasFewQueries(t *testing.T) {
	w := newWorld(t, manual)
	mine := w.as("me", store.AllScopes)
	sb := w.sandbox(mine, w.codebase(mine, "me"))
	ctx, cancel := context.WithCancel(mine)
	defer cancel()
	const endless = "with recursive t(n) as (values (1) union all select n + 1 from t) select count(*) from t"
	ended := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := w.query(ctx, &sandboxv1.QuerySandboxRequest{SandboxId: sb, Statement: endless, Timeout: durationpb.New(60e9)})
			ended <- err
		}()
	}
	wantCode(t, "the third query", <-ended, codes.ResourceExhausted)
	cancel()
	for range 2 {
		wantCode(t, "a query that was canceled", <-ended, codes.Canceled)
	}
	until(func() bool {
		_, err := w.query(mine, &sandboxv1.QuerySandboxRequest{SandboxId: sb, Statement: "select 1"})
		return err == nil
	})
}

// Queries of an owner that one call of a function keeps busy hold up no other owner, and end when
// their callers leave.
func TestALongQueryHoldsUpNoOtherOwner(t *testing.T) {
	w := newWorld(t, manual)
	mine, yours := w.as("me", store.AllScopes), w.as("you", store.AllScopes)
	sb, other := w.sandbox(mine, w.codebase(mine, "me")), w.sandbox(yours, w.codebase(yours, "you"))
	ctx, cancel := context.WithCancel(mine)
	defer cancel()
	const oneStep = "select instr(replace(hex(zeroblob(1900000)),'0','a'), replace(hex(zeroblob(900000)),'0','a')||'b')"
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := w.query(ctx, &sandboxv1.QuerySandboxRequest{SandboxId: sb, Statement: oneStep, Timeout: durationpb.New(60e9)})
			ended <- err
		}()
	}
	until(func() bool { return len(queryProcesses(t)) == 2 })
	if got, err := w.query(yours, &sandboxv1.QuerySandboxRequest{SandboxId: other, Statement: "select 1"}); err != nil || len(got.Rows) != 1 {
		t.Errorf("the query of the other owner: %v, %v", got, err)
	}
	if len(ended) > 0 {
		t.Errorf("it waited for %v", <-ended)
	}
	cancel()
	for range 2 {
		wantCode(t, "a query that was canceled", <-ended, codes.Canceled)
	}
	until(func() bool { return queryProcesses(t) == nil })
	until(func() bool { // the server may learn of the end after the callers
		_, err := w.query(mine, &sandboxv1.QuerySandboxRequest{SandboxId: sb, Statement: "select 1"})
		return err == nil
	})
	_, err := w.query(mine, &sandboxv1.QuerySandboxRequest{SandboxId: sb, Statement: oneStep, Timeout: durationpb.New(1e8)})
	wantCode(t, "a query that takes too long", err, codes.DeadlineExceeded)
	if left := queryProcesses(t); left != nil {
		t.Errorf("the processes %v are left", left)
	}
}

// queryProcesses are the processes of queries that this process runs.
func queryProcesses(t *testing.T) (all []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || lists == nil {
		t.Fatalf("the children of this process: %v", err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for pid := range strings.FieldsSeq(string(text)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(line), query.Verb) {
				all = append(all, pid)
			}
		}
	}
	return all
}

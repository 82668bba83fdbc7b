package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/apiversion"
)

func TestViewIsListedByPages(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	for _, name := range []string{"a", "b", "c", "d", "e", "d-/x", ".env"} {
		if err := w.upload(ctx, cb, name, "x"); err != nil {
			t.Fatal(err)
		}
	}
	sb := w.sandbox(ctx, cb)
	var listed []string
	for token := ""; ; {
		page, err := w.sandboxes.ListView(ctx, &sandboxv1.ListViewRequest{SandboxId: sb, PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, e := range page.Entries {
			paths = append(paths, e.Path)
		}
		listed = append(listed, strings.Join(paths, " "))
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if got, want := strings.Join(listed, ", "), ".env a, b c, d d-, e"; got != want {
		t.Errorf("pages have %q, want %q", got, want)
	}
	for _, r := range []*sandboxv1.ListViewRequest{{SandboxId: sb, PageSize: -1}, {SandboxId: sb, PageToken: "../x"}} {
		if _, err := w.sandboxes.ListView(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// Else a client that takes messages of the usual size could list none of them.
func TestPagesOfSandboxesFitAMessage(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	var rules []*sandboxv1.PermissionRule
	for i := range 230 {
		rules = append(rules, &sandboxv1.PermissionRule{Pattern: fmt.Sprintf("%s/%d", strings.Repeat("/"+strings.Repeat("x", 250), 15), i), Permission: sandboxv1.Permission_PERMISSION_READ})
	}
	var want, got []string
	for range 6 {
		made, err := w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: rules})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, made.Id)
	}
	for token, pages := "", 1; ; pages++ {
		page, err := w.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range page.Sandboxes {
			got = append(got, sb.Id)
		}
		if token = page.NextPageToken; token == "" {
			if pages != 2 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnAnswerThatNoClientTakesIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	list := func(size int) error {
		answer := &sandboxv1.ListFilesResponse{Files: []*sandboxv1.FileInfo{{Path: strings.Repeat("x", size)}}}
		info := &grpc.UnaryServerInfo{FullMethod: sandboxv1.CodebaseService_ListFiles_FullMethodName}
		_, err := w.interceptor.Unary(t.Context(), &sandboxv1.ListFilesRequest{}, info, func(context.Context, any) (any, error) { return answer, nil })
		return err
	}
	if err := list(apiversion.MaxAnswerBytes - 100); err != nil {
		t.Error(err)
	}
	if err := list(apiversion.MaxAnswerBytes); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "ask for less at once") {
		t.Error(err)
	}
}

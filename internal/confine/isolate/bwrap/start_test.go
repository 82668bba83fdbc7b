package bwrap

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// startSpec is a spec with a socket, whose other end ends with the test.
func startSpec(t *testing.T) isolate.Spec {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	spec := testSpec()
	spec.View, spec.Init, spec.Guest = t.TempDir(), "", os.NewFile(uintptr(fds[1]), "guest")
	return spec
}

// The stage covers /tmp before bubblewrap starts.
func TestStartFindsBwrapBelowTmp(t *testing.T) {
	testenv.Root(t)
	dir, err := os.MkdirTemp(stageDir, "bwrap") // for its owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	direct := filepath.Join(dir, "bwrap")
	if err := os.WriteFile(direct, []byte("#!/bin/sh\necho 'bwrap: I ran' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := fakeBwrap(t, "", "") + "-link"
	if err := os.Symlink(direct, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"by its path": direct, "by a link from elsewhere": link} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Options{Path: path}).Start(context.Background(), startSpec(t))
			if err == nil || !strings.Contains(err.Error(), "I ran") {
				t.Errorf("got %v, want its complaint", err)
			}
		})
	}
}

func TestStartThatFails(t *testing.T) {
	testenv.Root(t)
	tests := []struct {
		name   string
		bwrap  string // a script
		change func(*isolate.Spec)
		kind   errdefs.Kind
		text   string
	}{
		{"bwrap complains", "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1", nil, errdefs.Unsupported, "No permissions to create a new namespace"},
		{"bwrap is silent", "exit 1", nil, errdefs.Unsupported, "without an error message"},
		{"bwrap hangs", "exec sleep 1000", nil, errdefs.Deadline, "gave up waiting"},
		{"the view is gone", "exit 1", func(s *isolate.Spec) { s.View = "/not/there" }, errdefs.NotFound, "open the view: no such file"},
		{"the init is gone", "exit 1", func(s *isolate.Spec) { s.Init = "/not/there" }, errdefs.NotFound, "open the sandbox's init"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			path := fakeBwrap(t, "", "")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.bwrap+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			spec := startSpec(t)
			if tt.change != nil {
				tt.change(&spec)
			}
			patience := time.Minute
			if tt.kind == errdefs.Deadline {
				patience = time.Second
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := New(Options{Path: path}).Start(ctx, spec)
			if !errdefs.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v (%v), want %q (%v)", err, errdefs.KindOf(err), tt.text, tt.kind)
			}
			if err != nil && strings.Contains(err.Error(), spec.View) {
				t.Errorf("the error names the view's host path: %v", err)
			}
			if spec.Guest.Close() == nil {
				t.Error("the guest's socket was left open")
			}
		})
	}
}

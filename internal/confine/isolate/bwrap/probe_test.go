package bwrap

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// fakeBwrap writes a script that answers --version and fails otherwise.
func fakeBwrap(t *testing.T, version, complaint string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bwrap") // Start covers /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bwrap")
	script := "#!/bin/sh\ncase $1 in --version) echo '" + version + "';; *) echo '" + complaint + "' >&2; exit 1;; esac\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProbeNamesTheRemedy(t *testing.T) {
	const denied = "bwrap: setting up uid map: Permission denied"
	tests := []struct {
		name      string
		version   string
		complaint string
		setting   string
		value     string
		want      []string
	}{
		{"an old release", "bubblewrap 0.4.1", "", "", "", []string{"0.4.1 is too old", "0.8"}},
		{"no release", "hello", "", "", "", []string{`unknown version "hello"`}},
		{"user namespaces for root only", "bubblewrap 0.8.0", denied, "kernel/unprivileged_userns_clone", "0\n", []string{"uid map", "sysctl -w kernel.unprivileged_userns_clone=1"}},
		{"no user namespaces", "bubblewrap 0.11.0", denied, "user/max_user_namespaces", "0\n", []string{"sysctl -w user.max_user_namespaces"}},
		{"AppArmor", "bubblewrap 1.0", denied, "kernel/apparmor_restrict_unprivileged_userns", "1\n", []string{"AppArmor", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"}},
		{"a setting that does not block", "bubblewrap 0.8.0", denied, "kernel/unprivileged_userns_clone", "1\n", []string{"uid map: Permission denied", "container"}},
		{"an option it does not know", "bubblewrap 0.8.0", "bwrap: Unknown option --disable-userns", "", "", []string{"too old"}},
		{"a limit of processes", "bubblewrap 0.8.0", "bwrap: Creating new namespace failed: Resource temporarily unavailable", "", "", []string{"unavailable; a limit of processes is too small"}},
		{"terminal escapes", "bubblewrap 0.8.0", "bwrap: a\x1b[31mb", "", "", []string{"a?[31mb"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := New(Options{Path: fakeBwrap(t, tt.version, tt.complaint)})
			b.sysctls = t.TempDir()
			if tt.setting != "" {
				path := filepath.Join(b.sysctls, tt.setting)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(tt.value), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := b.Probe(context.Background())
			if !errdefs.Is(err, errdefs.Unsupported) {
				t.Fatalf("got %v, want Unsupported", err)
			}
			for _, text := range tt.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("got %q, want %q in it", err, text)
				}
			}
		})
	}
}

func TestMissingBwrapIsUnsupported(t *testing.T) {
	for _, path := range []string{"/not/there/bwrap", "no-such-bwrap"} {
		err := New(Options{Path: path}).Probe(context.Background())
		if !errdefs.Is(err, errdefs.Unsupported) || !strings.Contains(err.Error(), "apt install bubblewrap") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestProbePassesHere(t *testing.T) {
	testenv.Bwrap(t)
	if err := New(Options{}).Probe(context.Background()); err != nil {
		t.Error(err)
	}
}

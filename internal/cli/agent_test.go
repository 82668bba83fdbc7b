package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// A home directory is not shown as a part of a program, also where a link leads to it.
func TestAHomeThatIsALinkIsNoPartOfAProgram(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, link := filepath.Join(dir, "home"), filepath.Join(dir, "link")
	program := filepath.Join(home, "bin", "agent")
	for _, err := range []error{
		os.MkdirAll(filepath.Dir(program), 0o700), os.Symlink(home, link),
		os.WriteFile(program, nil, 0o700), os.WriteFile(filepath.Join(home, "pyvenv.cfg"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	in := &inside{home: link, record: record.Record{Workspace: "/project"}, getenv: func(string) string { return "" }}
	if parts := in.partsOf(program); len(parts) != 1 || parts[0] != program {
		t.Errorf("parts of %s: %q", program, parts)
	}
	for _, p := range []string{link, home, dir} {
		if err := in.checkToolchain([]string{p}, false); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// The path of a home directory is never read as options of a mount.
func TestAHomeDirectoryIsNoOption(t *testing.T) {
	home := filepath.Join(t.TempDir(), "a,dst=", "etc")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	var o runOptions
	p := &profile.Profile{Name: "x", Home: []policy.Rule{{Pattern: "/x", Permission: policy.Read}}}
	if err := o.showHome(&inside{home: home, record: record.Record{Workspace: "/project"}}, p); !errdefs.Is(err, errdefs.Invalid) || len(o.Mounts) > 0 {
		t.Errorf("%v, %q", err, o.Mounts)
	}
}

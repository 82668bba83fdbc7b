package bwrap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// testSpec returns a spec that is valid for any user.
func testSpec() isolate.Spec {
	spec := isolate.Spec{View: "/view", Workspace: "/workspace", Init: "/init", UID: 7, GID: 8, User: "ann"}
	if os.Geteuid() == 0 {
		spec.HostUID, spec.HostGID = 1000, 1000
	}
	return spec
}

func TestArgumentsAskForEverything(t *testing.T) {
	p, err := newPlan(testSpec())
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.arguments(nil)
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	for _, want := range [][]string{
		{"--unshare-user"},
		{"--unshare-pid"},
		{"--unshare-ipc"},
		{"--unshare-uts"},
		{"--unshare-cgroup"},
		{"--unshare-net"},
		{"--disable-userns"},
		{"--cap-drop", "ALL"},
		{"--as-pid-1"},
		{"--new-session"},
		{"--die-with-parent"},
		{"--clearenv"},
		{"--uid", "7"},
		{"--gid", "8"},
		{"--hostname", "sandbox"},
		{"--seccomp", "6"},
		{"--block-fd", "4"},
		{"--info-fd", "5"},
		{"--proc", "/proc"},
		{"--dev", "/dev"},
		{"--ro-bind", "/usr", "/usr"},
		{"--ro-bind", "/tmp/etc", "/etc"},
		{"--tmpfs", "/home/ann"},
		{"--bind", "/tmp/view", "/workspace"},
	} {
		if !containsRun(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if end := []string{"--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"}; !slices.Equal(args[len(args)-len(end):], end) {
		t.Errorf("the root is not made read-only at the end: %q", args)
	}
	for _, arg := range args {
		if strings.Contains(arg, "/view") && arg != "/tmp/view" || arg == "--share-net" || arg == "--cap-add" {
			t.Errorf("%q is among the arguments", arg)
		}
	}
}

func containsRun(list, run []string) bool {
	for i := range list {
		if len(list[i:]) >= len(run) && slices.Equal(list[i:i+len(run)], run) {
			return true
		}
	}
	return false
}

func TestInitPathNamesItsDescriptor(t *testing.T) {
	if want := "/proc/self/fd/" + itoa(initFD); initPath != want {
		t.Errorf("init is %s, want %s", initPath, want)
	}
}

func TestNetworkOfTheHostIsNotUnshared(t *testing.T) {
	spec := testSpec()
	spec.Net = isolate.NetHost
	p, err := newPlan(spec)
	if err != nil {
		t.Fatal(err)
	}
	var a arguments
	p.isolation(&a)
	if slices.Contains(a.list, "--unshare-net") {
		t.Errorf("got %q", a.list)
	}
}

func TestTreeIsBuiltAroundAMissingMountPoint(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"bin", "local/lib", "local/share/doc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("lib", filepath.Join(root, "local/lib64")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "local/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var a arguments
	p := &plan{}
	if err := p.tree(&a, root, []string{root + "/local/new/place", "/elsewhere"}); err != nil {
		t.Fatal(err)
	}
	bind := func(path string) []string { return []string{"--ro-bind", root + path, root + path} }
	want := slices.Concat([]string{"--dir", root}, bind("/bin"), []string{"--dir", root + "/local"}, bind("/local/file"), bind("/local/lib"),
		[]string{"--symlink", "lib", root + "/local/lib64"}, bind("/local/share"))
	if diff := cmp.Diff(want, a.list); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name   string
		change func(*isolate.Spec)
		text   string
	}{
		{"a workspace over the kernel's files", func(s *isolate.Spec) { s.Workspace = "/proc/x" }, "directory of the kernel"},
		{"a user name that breaks passwd", func(s *isolate.Spec) { s.User = "a:b" }, "do not allow"},
		{"a host name that breaks hosts", func(s *isolate.Spec) { s.Hostname = "a b" }, "do not allow"},
		{"a relative home", func(s *isolate.Spec) { s.Home = "home" }, "not a clean absolute path"},
		{"a source that holds the system", func(s *isolate.Spec) { s.Conceal = []string{"/"} }, "contains /usr"},
		{"a mount into the workspace", func(s *isolate.Spec) { s.Mounts = []isolate.Mount{{Source: dir, Target: "/workspace/x"}} }, "inside the workspace"},
		{"a mount of what is concealed", func(s *isolate.Spec) {
			s.Conceal, s.Mounts = []string{dir}, []isolate.Mount{{Source: dir, Target: "/x"}}
		}, "only through its view"},
		{"a mount of the whole host", func(s *isolate.Spec) { s.Mounts = []isolate.Mount{{Source: "/", Target: "/x"}} }, "running system"},
		{"a mount of a device", func(s *isolate.Spec) { s.Mounts = []isolate.Mount{{Source: "/dev/null", Target: "/x"}} }, "neither a directory"},
		{"another user", func(s *isolate.Spec) { s.HostUID, s.HostGID = 0, 0; otherUser(s) }, "host user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := testSpec()
			tt.change(&spec)
			if _, err := newPlan(spec); !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want it refused with %q", err, tt.text)
			}
		})
	}
}

func TestViewsAreBoundFromTheStage(t *testing.T) {
	spec := testSpec()
	spec.ViewName = "workspace"
	spec.Mounts = []isolate.Mount{{View: "tools", Target: "/opt/tools"}, {View: "data", Target: "/data"}}
	p, err := newPlan(spec)
	if err != nil {
		t.Fatal(err)
	}
	var a arguments
	p.shown(&a)
	want := []string{
		"--bind", stageView + "/data", "/data", "--bind", stageView + "/tools", "/opt/tools", "--bind", stageView + "/workspace", p.spec.Workspace,
	}
	if diff := cmp.Diff(want, a.list[:min(len(a.list), len(want))]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	spec.Mounts[0].Target = "/proc/x"
	if _, err := newPlan(spec); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a view in /proc: %v", err)
	}
}

func otherUser(s *isolate.Spec) {
	if uid := os.Geteuid(); uid != 0 {
		s.HostUID, s.HostGID = uid+1, uid+1
	}
}

func TestConcealedDirectoriesAreMaskedWhereTheyShow(t *testing.T) {
	p := &plan{conceal: []string{"/home/ann/src", "/usr/src/x"}}
	tests := []struct {
		source, target string
		want           []string
	}{
		{"/usr", "/usr", []string{"/usr/src/x"}},
		{"/home", "/opt/home", []string{"/opt/home/ann/src"}},
		{"/home/ann/src2", "/x", nil},
		{"/home/ann/src", "/x", []string{"/x"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, p.masks(tt.source, tt.target)); diff != "" {
			t.Errorf("%s at %s: (-want +got)\n%s", tt.source, tt.target, diff)
		}
	}
}

func TestAccountsAreTheSandboxsOwn(t *testing.T) {
	tests := []struct {
		name     string
		uid, gid int
		user     string
		passwd   []string
	}{
		{"a user", 1000, 1000, "ann", []string{"root", "ann", "nobody"}},
		{"root", 0, 0, "root", []string{"root", "nobody"}},
		{"the user whom the kernel calls nobody", 65534, 65534, "user", []string{"root", "user"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &plan{spec: isolate.Spec{UID: tt.uid, GID: tt.gid, User: tt.user, Home: "/h", Hostname: "box"}, etcFiles: map[string]etcFile{}}
			p.synthesise()
			var names []string
			for line := range strings.Lines(string(p.etcFiles["/etc/passwd"].content)) {
				name, _, _ := strings.Cut(line, ":")
				names = append(names, name)
			}
			if diff := cmp.Diff(tt.passwd, names); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestUnreadableFilesOfEtcStayOut(t *testing.T) {
	p := &plan{etcFiles: map[string]etcFile{}}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.copyEtcFile(secret); err != nil || len(p.etcFiles) != 0 {
		t.Errorf("got %v, %v", p.etcFiles, err)
	}
}

func TestDockersBridgeIsRefused(t *testing.T) {
	spec := testSpec()
	spec.Net = isolate.NetBridge
	if _, err := newPlan(spec); !errdefs.Is(err, errdefs.Unsupported) {
		t.Errorf("newPlan = %v, want Unsupported", err)
	}
}

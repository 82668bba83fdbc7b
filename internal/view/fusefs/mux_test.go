package fusefs_test

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// several is what mountAll mounts: the source of a view called name, under the rules. A view
// without a delta is read-only.
type several struct {
	name   string
	source tree
	rules  []string
	delta  bool
}

// mountAll mounts views on one connection until the test ends.
func mountAll(t *testing.T, all ...several) []*view {
	t.Helper()
	testenv.FUSE(t)
	home := t.TempDir()
	root := &view{t: t, dir: filepath.Join(home, "mnt")}
	if err := os.Mkdir(root.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var views []*view
	var options []fusefs.View
	for _, s := range all {
		v := &view{t: t, dir: filepath.Join(root.dir, s.name), source: t.TempDir()}
		s.source.make(t, v.source)
		handle, err := os.OpenFile(v.source, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { handle.Close() })
		o := layer.Options{Source: handle, ReadOnly: true, Plain: true}
		if s.delta {
			o = layer.Options{Source: handle, Dir: filepath.Join(home, s.name)}
		}
		if v.layer, err = layer.Open(o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := v.layer.Close(); err != nil {
				t.Error(err)
			}
		})
		views = append(views, v)
		options = append(options, fusefs.View{Name: s.name, Options: fusefs.Options{
			Layer: v.layer, Policy: compile(t, s.rules...), UID: guestUID, GID: guestGID,
			OnDenial: v.onDenial, OnChange: v.onChange, RepeatTime: time.Hour, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		}})
	}
	for _, dir := range []string{home, filepath.Dir(home)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mounted, err := fusefs.MountAll(root.dir, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mounted[len(mounted)-1].Unmount(); err != nil {
			t.Error(err)
		}
		<-mounted[0].Done()
	})
	for i, fs := range mounted {
		views[i].FS = fs
	}
	if err := root.poll(); err != nil {
		t.Fatal(err)
	}
	return views
}

func TestEachViewOfAConnectionHasItsOwnPolicy(t *testing.T) {
	views := mountAll(t,
		several{name: "workspace", source: tree{"f": "one", "secret": "1"}, rules: []string{"**=write", "/secret=none"}, delta: true},
		several{name: "tools", source: tree{"f": "two", "secret": "2", "d/g": "3"}, rules: []string{"**=read"}})
	work, tools := views[0], views[1]
	if got := work.guest("ls; cat f; cat secret 2>&1; echo new >n && cat n"); got != "f\none"+"cat: secret: No such file or directory\nnew" {
		t.Errorf("the first view: %q", got)
	}
	if got := tools.guest("ls; cat f secret d/g; echo x 2>/dev/null >n || echo refused; ls -A .. | wc -l; ls ../other 2>&1"); got != "d\nf\nsecret\ntwo23refused\n0\nls: cannot access '../other': No such file or directory" {
		t.Errorf("the second view: %q", got)
	}
	work.denied("/secret", "open")
	if d := tools.denied("/", "open"); d.Permission.String() != "read" {
		t.Errorf("the refusal in the second view: %+v", d)
	}
	if work.layer.Statfs() != (layer.Usage{}) {
		t.Error("a quota is shown where there is none")
	}
}

func TestNothingMovesBetweenViews(t *testing.T) {
	all := []string{"**=write"}
	views := mountAll(t,
		several{name: "a", source: tree{"f": "one", "d/x": "1"}, rules: all, delta: true},
		several{name: "b", source: tree{"g": "two"}, rules: all, delta: true})
	from, to := views[0], views[1]
	for _, name := range []string{"f", "d"} {
		if err := unix.Rename(from.path(name), to.path("n")); err != unix.EXDEV {
			t.Errorf("rename %s: %v", name, err)
		}
	}
	if err := unix.Renameat2(unix.AT_FDCWD, from.path("f"), unix.AT_FDCWD, to.path("g"), unix.RENAME_EXCHANGE); err != unix.EXDEV {
		t.Errorf("exchange: %v", err)
	}
	if err := unix.Link(from.path("f"), to.path("n")); err != unix.EXDEV {
		t.Errorf("link: %v", err)
	}
	if err := unix.Rename(to.dir, to.dir+"2"); err != unix.EACCES && err != unix.EXDEV {
		t.Errorf("rename a view: %v", err)
	}
	if err := os.Mkdir(filepath.Dir(to.dir)+"/new", 0o755); err == nil {
		t.Error("a directory was made beside the views")
	}
	in, err := os.Open(from.path("f"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to.path("copy"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Error(err)
	}
	if got := to.read("copy") + to.names("") + from.names(""); got != "onecopy gd f" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestEveryViewIsServedFromTheCache(t *testing.T) {
	files := tree{"f": "one", "d/g": "two"}
	views := mountAll(t,
		several{name: "a", source: files, rules: []string{"**=write"}, delta: true},
		several{name: "b", source: files, rules: []string{"**=read"}},
		several{name: "c", source: files, rules: []string{"**=read"}})
	for _, v := range views {
		use := func() {
			if got := v.guest("cat f d/g; stat -c %s f d/g; ls d"); got != "onetwo3\n3\ng" {
				t.Errorf("%s: %q", v.dir, got)
			}
		}
		use()
		use() // the kernel has learnt all that it may keep
		if got := v.requests(use); len(got) > 0 {
			t.Errorf("%s: the second time there were requests: %v", v.dir, got)
		}
	}
	if a, b := views[1].stat("f"), views[2].stat("f"); a.Dev != b.Dev || a.Ino == b.Ino {
		t.Errorf("files of two views have the numbers %d:%d and %d:%d", a.Dev, a.Ino, b.Dev, b.Ino)
	}
	if err := os.WriteFile(views[1].source+"/f", []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the view to show the change", func() bool { return views[1].guest("cat f") == "changed" })
	if got := views[2].read("f"); got != "one" {
		t.Errorf("another view shows %q", got)
	}
}

func TestSpecialFilesAreAbsentFromAPlainView(t *testing.T) {
	v := mountAll(t,
		several{name: "a", source: tree{"f": "one"}, rules: []string{"**=write"}, delta: true},
		several{name: "b", source: tree{"f": "one", "l": "-> f"}, rules: []string{"**=read"}})[1]
	if err := unix.Mkfifo(v.source+"/pipe", 0o666); err != nil {
		t.Fatal(err)
	}
	if got := v.names("") + " " + v.guest("cat l; cat pipe"); got != "f l onecat: pipe: No such file or directory" {
		t.Errorf("the view shows %q", got)
	}
}

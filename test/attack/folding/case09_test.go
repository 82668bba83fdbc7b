// Package folding_test is the part of case 9 that needs a source which finds
// names by other spellings. It is a program of its own because the library that
// serves such a source leaves descriptors open in whatever it is linked into,
// and the programs of attack_test that run inside must have none.
package folding_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// foldingDir is a directory, kept in memory, that finds each name by any case
// as casefold directories of ext4, FAT, NTFS and SMB do.
type foldingDir struct {
	fs.Inode
	files map[string]string
	dirs  map[string]*foldingDir
	kids  map[string]*fs.Inode
}

var (
	_ fs.NodeLookuper  = (*foldingDir)(nil)
	_ fs.NodeReaddirer = (*foldingDir)(nil)
)

// OnAdd makes what is in the directory.
func (d *foldingDir) OnAdd(ctx context.Context) {
	d.kids = map[string]*fs.Inode{}
	for name, content := range d.files {
		file := &fs.MemRegularFile{Data: []byte(content), Attr: fuse.Attr{Mode: 0o644}}
		d.kids[name] = d.NewPersistentInode(ctx, file, fs.StableAttr{})
	}
	for name, dir := range d.dirs {
		d.kids[name] = d.NewPersistentInode(ctx, dir, fs.StableAttr{Mode: syscall.S_IFDIR})
	}
}

// Lookup finds name by any case.
func (d *foldingDir) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	for spelt, kid := range d.kids {
		if !strings.EqualFold(spelt, name) {
			continue
		}
		out.Mode = 0o755
		if getter, ok := kid.Operations().(fs.NodeGetattrer); ok {
			var attr fuse.AttrOut
			if errno := getter.Getattr(ctx, nil, &attr); errno != 0 {
				return nil, errno
			}
			out.Attr = attr.Attr
		}
		return kid, 0
	}
	return nil, syscall.ENOENT
}

// Readdir lists the names as they are spelt.
func (d *foldingDir) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	var list []fuse.DirEntry
	for name, kid := range d.kids {
		list = append(list, fuse.DirEntry{Name: name, Mode: kid.Mode(), Ino: kid.StableAttr().Ino})
	}
	return fs.NewListDirStream(list), 0
}

// mounterEnv makes this program mount a folding source instead of testing.
const mounterEnv = "AGENTFENSE_TEST_FOLDING"

var binary string

func TestMain(m *testing.M) {
	if os.Getenv(mounterEnv) != "" {
		os.Exit(onFoldingSource(os.Args[1:]))
	}
	harness.Main(m, &binary, harness.Build)
}

// onFoldingSource mounts a source that folds case on its first argument, in a
// mount namespace of its own, runs there what the others say, and returns its
// exit code.
func onFoldingSource(args []string) int {
	root := &foldingDir{
		files: map[string]string{".env": "secret", "plain": "plain\n", "größe": "secret"},
		dirs: map[string]*foldingDir{
			"dir":     {files: map[string]string{"x": "x\n", "1": "one\n"}},
			"secrets": {files: map[string]string{"key": "secret"}},
			".git":    {files: map[string]string{"config": "secret"}},
		},
	}
	server, err := fs.Mount(args[0], root, &fs.Options{
		MountOptions:   fuse.MountOptions{DirectMountStrict: true},
		RootStableAttr: &fs.StableAttr{Ino: 1},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	defer server.Unmount()
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return cmd.ProcessState.ExitCode()
}

// A source that finds names by another case gives nothing away by it: what is
// spelt otherwise is absent, hidden or not, and making it does not replace
// what it would fall on.
func TestOtherSpellingsOnAFoldingSource(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	outside := func(args ...string) harness.Result {
		cmd := exec.Command(self, append([]string{s.Source, s.Binary}, args...)...)
		cmd.Env = append(os.Environ(), mounterEnv+"=1", "AGENTFENSE_HOME="+s.Home)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		return harness.Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode()}
	}
	hide := []string{"--preset", "full-access", "--hide", ".env", "--hide", "secrets/", "--hide", "größe", "--hide", ".git/"}
	run := append([]string{"run", "--name", s.Name, "--dir", s.Source}, hide...)
	const script = `for f in plain dir/x dir/1 PLAIN dir/X DIR/x .env .ENV .Env secrets/key SECRETS/key Secrets/KEY größe GRÖSSE GRÖßE .GIT/config .git/CONFIG; do
	cat $f 2>&1
done
ls -A . dir
mv .ENV moved 2>/dev/null && echo moved; rm SECRETS/key 2>/dev/null && echo removed; ln PLAIN linked 2>/dev/null && echo linked
echo mine > .ENV && mkdir .GIT && echo mine > .GIT/config && cat .ENV .GIT/config`
	r := outside(append(run, "--", "sh", "-c", script)...)
	want := "plain\nx\none\n"
	for _, f := range []string{"PLAIN", "dir/X", "DIR/x", ".env", ".ENV", ".Env", "secrets/key", "SECRETS/key", "Secrets/KEY", "größe", "GRÖSSE", "GRÖßE", ".GIT/config", ".git/CONFIG"} {
		want += "cat: " + f + ": No such file or directory\n"
	}
	want += ".:\ndir\nplain\n\ndir:\n1\nx\nmine\nmine\n"
	if r.Code != 0 || r.Stdout != want {
		t.Errorf("exit code %d, stdout\n%s\nwant\n%s\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
	// What was made would fall on what is hidden: that is told, before
	// anything is written, and by any spelling it is what git would run.
	if r := outside("apply", s.Name); r.Code != 1 || strings.Count(r.Stdout, "conflict") < 2 || !strings.Contains(r.Stderr, "nothing applied") {
		t.Errorf("apply over another spelling: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := outside("diff", s.Name, "--json"); !strings.Contains(r.Stdout, "runs_on_host") {
		t.Errorf("the diff does not mark .GIT/config:\n%s", r.Stdout)
	}
}

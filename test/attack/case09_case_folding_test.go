package attack_test

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

	"github.com/agentfense/agentfense/internal/needs"
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

// onFoldingSource mounts a source that folds case, in a mount namespace of its
// own, and runs there what its arguments say.
const onFoldingSource = "on folding source"

func init() {
	programs[onFoldingSource] = func(args []string) int {
		root := &foldingDir{
			files: map[string]string{".env": "secret", "plain": "plain\n"},
			dirs: map[string]*foldingDir{
				"dir":     {files: map[string]string{"x": "x\n", "1": "one\n"}},
				"secrets": {files: map[string]string{"key": "secret"}},
			},
		}
		server, err := fs.Mount(args[0], root, &fs.Options{
			MountOptions:   fuse.MountOptions{DirectMountStrict: true},
			RootStableAttr: &fs.StableAttr{Ino: 1},
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Unmount()
		cmd := exec.Command(args[1], args[2:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = "/", os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return cmd.ProcessState.ExitCode()
	}
}

// A source that finds names by another case gives nothing away by it: what is
// spelt otherwise is absent, hidden or not, and making it does not replace
// what it would fall on.
func TestOtherSpellingsOnAFoldingSource(t *testing.T) {
	needs.Root(t)
	s := harness.New(t, binary, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	outside := func(args ...string) harness.Result {
		cmd := exec.Command(self, append([]string{s.Source, s.Binary}, args...)...)
		cmd.Env = append(os.Environ(), "AGENTFENSE_TEST_PROGRAM="+onFoldingSource, "AGENTFENSE_HOME="+s.Home)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		return harness.Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode()}
	}
	script := `for f in plain dir/x dir/1 PLAIN dir/X DIR/x .env .ENV .Env secrets/key SECRETS/key Secrets/KEY; do
	cat $f 2>&1
done
ls -A . dir
echo mine > .ENV && cat .ENV`
	r := outside("run", "--name", s.Name, "--dir", s.Source, "--preset", "full-access", "--hide", ".env", "--hide", "secrets/", "--", "sh", "-c", script)
	want := "plain\nx\none\n"
	for _, f := range []string{"PLAIN", "dir/X", "DIR/x", ".env", ".ENV", ".Env", "secrets/key", "SECRETS/key", "Secrets/KEY"} {
		want += "cat: " + f + ": No such file or directory\n"
	}
	want += ".:\ndir\nplain\n\ndir:\n1\nx\nmine\n"
	if r.Code != 0 || r.Stdout != want {
		t.Errorf("exit code %d, stdout\n%s\nwant\n%s\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
	if r := outside("apply", s.Name); r.Code == 0 || !strings.Contains(r.Stdout, "conflict") {
		t.Errorf("apply over another spelling: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

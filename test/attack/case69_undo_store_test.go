package attack_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// The previous versions that undo keeps are reached neither from inside, also where the state
// directory is in the source, nor by another user, although the files keep their own modes. That
// no other owner of a server restores a snapshot is tested in internal/server/service.
func TestTheUndoStoreIsPrivate(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "previous version\n", "state/": ""})
	s.Home = filepath.Join(s.Source, "state")
	if err := os.Chmod(s.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Run("echo new > f", "--preset", "full-access"), 0)
	agentfense(t, s, "apply", s.Name)
	image := ""
	err := filepath.WalkDir(filepath.Join(s.Home, "history"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has the mode %s", path, info.Mode())
		}
		if filepath.Base(filepath.Dir(path)) == "images" {
			image = path
		}
		return nil
	})
	if content, readErr := os.ReadFile(image); err != nil || readErr != nil || string(content) != "previous version\n" {
		t.Fatalf("the image %q holds %q, %v, %v", image, content, err, readErr)
	}
	inside, err := filepath.Rel(s.Source, image)
	if err != nil {
		t.Fatal(err)
	}
	prints(t, s, "ls state "+inside+" /proc/1/root"+image+" 2>/dev/null; cat "+inside+" 2>/dev/null; echo done", "done\n")
	prints(t, s, "! mkdir state && ! echo x > "+inside+" && ! ln "+inside+" stolen && ! find . | grep images", "")
	agentfense(t, s, "undo", s.Name, "--yes")
	if got := s.Read("f"); got != "previous version\n" {
		t.Errorf("after undo f holds %q", got)
	}
	testenv.Root(t)
	agentfense(t, s, "redo", s.Name, "--yes")
	cmd := exec.Command("find", filepath.Join(s.Home, "history"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	for dir := s.Source; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755)
	}
	if out, err := cmd.Output(); err == nil || len(out) > 0 {
		t.Errorf("another user lists %q, %v", out, err)
	}
}

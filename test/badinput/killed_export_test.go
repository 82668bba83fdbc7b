package badinput_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// An export that is killed leaves no file under its name, and can be repeated. An import that is
// killed leaves no sandbox, neither when it has read the file nor when it has written half of the
// changes.
func TestKilledExportsAndImportsLeaveNothingHalf(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "source\n", "gone": "gone\n"})
	to := t.TempDir()
	wantCode(t, s.Run("echo 1 > f; rm gone; mkdir d; echo new > d/n", "--preset", "full-access"), 0)
	for _, format := range []string{"agentfs", "tar", "oci", "patch"} {
		file := filepath.Join(to, "changes."+format)
		s.KilledAt("export: written", "export", s.Name, file, "--format", format)
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("%s: a killed export leaves the file", format)
		}
		wantCode(t, s.Agentfense("export", s.Name, file, "--format", format), 0)
	}
	file := filepath.Join(to, "changes.agentfs")
	for _, point := range []string{"import: one step", "create sandbox: recorded", "create sandbox: logged"} {
		s.KilledAt(point, "import", file, "made", "--preset", "full-access")
		if list := s.Agentfense("ls", "--quiet").Stdout; list != s.Name+"\n" {
			t.Errorf("after an import killed at %q there are %q", point, list)
		}
		wantCode(t, s.Agentfense("import", file, "made", "--preset", "full-access"), 0)
		prints(t, s.Agentfense("diff", "made", "--name-status"), s.Agentfense("diff", s.Name, "--name-status").Stdout)
		wantCode(t, s.Agentfense("rm", "--force", "made"), 0)
		if left := leftIn(t, filepath.Join(s.Home, "sandboxes"), s.Name); left != "" {
			t.Errorf("an import killed at %q leaves %s", point, left)
		}
	}
}

// leftIn returns the names in a directory besides those that are known.
func leftIn(t *testing.T, dir string, known ...string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		if name := e.Name(); !strings.Contains(fmt.Sprint(known), name) {
			left = append(left, name)
		}
	}
	return strings.Join(left, " ")
}

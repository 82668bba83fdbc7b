package cleangit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
)

// A source may use the objects of other repositories of its owner, as a shared clone does, and not
// those of other users.
func TestAlternatesOfTheSource(t *testing.T) {
	testenv.Command(t, "git")
	const shared = "git clone -q --bare --shared . ../other; mv .git ../real; sed -i s,/.git/,/../real/, ../other/objects/info/alternates; mv ../other .git; git config core.bare false\n"
	for _, c := range []struct{ name, script, want string }{
		{"a shared clone", shared, ""},
		{"a relative path", shared + "echo ../../../real/objects >.git/objects/info/alternates", ""},
		{"a quoted path", shared + `echo "\"$PWD/../real/objects\"" >.git/objects/info/alternates`, ""},
		{"a list with comments, and what is absent", shared + "printf '# x\n\n/nowhere\n' >>.git/objects/info/alternates", ""},
		{"of an alternate", shared + "mkdir ../third; echo $PWD/../third >../real/objects/info/alternates", ""},
		{"a list that leads to itself", shared + "echo . >.git/objects/info/alternates", "more than 5 lists lead to each other"},
		{"a malformed line", `echo '"x' >.git/objects/info/alternates`, "is malformed"},
		{"a FIFO in an alternate", shared + "mkfifo ../real/objects/info/alternates", "is a FIFO"},
		{"of another user", shared + "chown 4242 ../real/objects", "belongs to uid 4242"},
		{"of another user, of an alternate", shared + "mkdir ../third; chown 4242 ../third; echo $PWD/../third >../real/objects/info/alternates", "belongs to uid 4242"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.script, "chown") {
				testenv.Root(t)
			}
			dir := filepath.Join(t.TempDir(), "source")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			gittest.Script(t, dir, "git init -q -b main; echo a >a; git add .; git commit -qm first\n"+c.script)
			workspace, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer workspace.Close()
			s, err := OpenSource(workspace)
			if err == nil {
				s.Close()
			}
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

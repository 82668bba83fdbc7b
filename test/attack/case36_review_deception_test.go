package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// Neither content nor names can control the reviewer's terminal, and every kind of change
// is listed.
func TestReviewShowsWhatIsThere(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"text": "one\n", "mode": "mode\n", "space": "a b\n", "bin": "text\n"}, who...)
		if err := os.Symlink("text", filepath.Join(s.Source, "link")); err != nil {
			t.Fatal(err)
		}
		r := s.Run(`set -e
printf 'one\n\033[2J\033]0;title\007\rover\n\342\200\256edoc\342\201\246\n\302\23331m\n' > text
chmod +x mode; printf 'a  b\n' > space; printf 'a\0b' > bin; ln -sfn /etc/passwd link
: > "$(printf 'name\nA\tfake')"; : > "$(printf 'esc\033[31m')"; : > "$(printf 'rtl\342\200\256gpj')"`, "--preset", "full-access")
		wantCode(t, r, 0)
		shown := map[string]string{"the summary": r.Stderr}
		for _, args := range [][]string{
			{"diff"},
			{"diff", "--stat"},
			{"diff", "--name-status"},
			{"diff", "--json"},
			{"audit"},
			{"audit", "--json"},
			{"files", "ls"},
			{"files", "ls", "--json"},
			{"inspect", "--json"},
			{"apply", "--dry-run", "--json"},
		} {
			verb := strings.Join(args, " ")
			if args[0] == "files" {
				shown[verb] = agentfense(t, s, append([]string{"files", "ls", s.Name, "/"}, args[2:]...)...)
			} else {
				shown[verb] = agentfense(t, s, append([]string{args[0], s.Name}, args[1:]...)...)
			}
		}
		for what, text := range shown {
			if at := strings.IndexAny(text, "\x1b\a\r\u202e\u2066\u009b\x7f"); at >= 0 {
				t.Errorf("%s holds %q", what, text[at:min(len(text), at+20)])
			}
			if strings.Contains(text, "\nA\tfake") {
				t.Errorf("%s shows a name as a line of its own", what)
			}
		}
		for _, want := range []string{"old mode 100644", "new mode 100755", "-a b", "+a  b", "+/etc/passwd", "Binary files"} {
			if !strings.Contains(shown["diff"], want) {
				t.Errorf("the diff does not say %q:\n%s", want, shown["diff"])
			}
		}
	})
}

package gitcommit

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
)

// What git would convert when it writes it is found by the attributes of the commit and by the
// configuration.
func TestConversions(t *testing.T) {
	testenv.Command(t, "git")
	as(t)
	const (
		crlf = "git's attribute eol=crlf converts its line ends"
		auto = "git's setting core.autocrlf converts its line ends"
	)
	for _, c := range []struct{ name, attributes, settings, want string }{
		{"nothing", "", "", ""},
		{"a pointer of LFS", "a filter=lfs", "", "git's attribute filter=lfs converts it"},
		{"ident", "a ident", "", "git's attribute ident=set converts it"},
		{"an encoding", "a working-tree-encoding=UTF-16", "", "git's attribute working-tree-encoding=UTF-16 converts it"},
		{"text", "a text", "", ""},
		{"text with CRLF", "a text eol=crlf", "", crlf},
		{"binary", "a binary", "git config core.autocrlf true", ""},
		{"text with LF", "a text eol=lf", "git config core.autocrlf true", ""},
		{"the setting autocrlf", "", "git config core.autocrlf true", auto},
		{"the setting autocrlf for input", "a text", "git config core.autocrlf input; git config core.eol crlf", ""},
		{"the setting eol", "a text", "git config core.eol crlf", "git's setting core.eol=crlf converts its line ends"},
		{"the setting eol without the attribute", "", "git config core.eol crlf", ""},
		{"another file", "h filter=lfs", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := gittest.Repository(t, c.settings+"\necho '"+c.attributes+"' >.gitattributes; git add .gitattributes; git commit -qm 2 2>/dev/null")
			r := openRepository(t, dir)
			got, err := r.Conversions(t.Context(), r.Parent(), []string{"a"})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			if c.want != "" {
				want["a"] = c.want
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

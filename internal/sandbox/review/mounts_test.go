package review

import (
	"slices"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestTopmost(t *testing.T) {
	got := topmost([]vpath.Path{"/a", "/a", "/a/b", "/a/b/c", "/ab", "/b/c"})
	if want := []vpath.Path{"/a", "/ab", "/b/c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnescapeOctal(t *testing.T) {
	for text, want := range map[string]string{
		`/plain`: "/plain", `/a\040b`: "/a b", `/tab\011\012`: "/tab\t\n", `\134040`: `\040`, `/end\04`: `/end\04`, `\999`: `\999`,
	} {
		if got := unescapeOctal(text); got != want {
			t.Errorf("unescapeOctal(%q) = %q, want %q", text, got, want)
		}
	}
}

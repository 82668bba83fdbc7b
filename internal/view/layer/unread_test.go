package layer

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// TestWhatMayBeWrittenAndNotReadIsTruncated: the copy of a file that is truncated to zero,
// or is empty, needs no content.
func TestWhatMayBeWrittenAndNotReadIsTruncated(t *testing.T) {
	b := newRightsBench(t, map[string]string{"mine": "secret", "theirs": "secret", "empty": "", "longer": "secret"}, map[string]owned{
		"mine": {me, me, 0o200}, "theirs": {0, group, 0o620}, "empty": {me, me, 0o200}, "longer": {me, me, 0o200},
	})
	asMe(t, func() {
		for _, p := range []vpath.Path{"/mine", "/theirs", "/empty", "/longer"} {
			size, one := int64(0), int64(1)
			if p != "/empty" {
				if err := b.openToWrite(p); !errors.Is(err, unix.EACCES) {
					t.Errorf("append to %s: %v, want EACCES", p, err)
				}
				if err := b.set(p, SetAttr{Size: &one}); !errors.Is(err, unix.EACCES) {
					t.Errorf("shorten %s: %v, want EACCES", p, err)
				}
				if err := b.set(p, SetAttr{Size: &size}); err != nil {
					t.Errorf("truncate %s: %v", p, err)
				}
			}
			if _, err := b.CopyUp(p); err != nil {
				t.Errorf("copy up %s: %v", p, err)
			}
			bases, err := b.Bases()
			if err != nil {
				t.Fatal(err)
			}
			if base, ok := bases[p]; !ok || base.Absent || base.SHA256 != nil || b.baseText(p) != "" {
				t.Errorf("the base of %s: %+v, %v; want its identity without content", p, base, ok)
			}
		}
	})
}

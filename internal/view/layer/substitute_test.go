package layer

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// newSubstitutes makes a bench that shows the content of /big twice while *on is true.
func newSubstitutes(t *testing.T, files map[string]string, on *bool) *bench {
	t.Helper()
	return newBench(t, files, func(o *Options) {
		o.Substitutes = &Substitutes{
			Wants: func(p vpath.Path) bool { return p == "/big" },
			Make: func(_ vpath.Path, content []byte) []byte {
				if !*on {
					return nil
				}
				return slices.Concat(content, content)
			},
			MaxBytes: 1 << 10,
		}
	})
}

func TestASubstituteIsShownAndChangesNothing(t *testing.T) {
	on := true
	b := newSubstitutes(t, map[string]string{"big": "abc", "other": "x"}, &on)
	for range 2 {
		if got, i := b.read("/big"), b.lookup("/big"); got != "abcabc" || i.Size != 6 {
			t.Errorf("read %q, size %d", got, i.Size)
		}
	}
	if got := b.read("/other"); got != "x" {
		t.Errorf("another file reads %q", got)
	}
	src, err := b.SourceInfo("/big")
	must(t, err)
	if i := b.lookup("/big"); src.Size != 3 || i.Ino != src.Ino || i.Mtime != src.Mtime {
		t.Errorf("the source's is %+v, shown is %+v", src, i)
	}
	if got := b.changes(); len(got) != 0 {
		t.Errorf("changes: %q", got)
	}
	must(t, os.WriteFile(b.src("new"), []byte("other"), 0o644))
	must(t, os.Rename(b.src("new"), b.src("big")))
	if got := b.read("/big"); got != "otherother" {
		t.Errorf("after a change of the source: %q", got)
	}
	on = false
	if got := b.ForgetSubstitutes(); !slices.Equal(got, []vpath.Path{"/big"}) {
		t.Errorf("forgot %q", got)
	}
	if got := b.read("/big"); got != "other" || b.lookup("/big").Size != 5 {
		t.Errorf("without the stand-in: %q", got)
	}
	must(t, os.WriteFile(b.src("big"), []byte(strings.Repeat("y", 2<<10)), 0o644))
	on = true
	if got := b.lookup("/big").Size; got != 2<<10 {
		t.Errorf("a file above the bound has size %d", got)
	}
}

func TestASubstituteIsCopiedUpAndTheBaseIsTheSources(t *testing.T) {
	for name, touch := range map[string]func(t *testing.T, b *bench) (want string){
		"opened for writing": func(t *testing.T, b *bench) string {
			f, _, err := b.Open("/big", true)
			must(t, err)
			must(t, f.Close())
			return "abcabc"
		},
		"truncated": func(t *testing.T, b *bench) string {
			size := int64(5)
			_, err := b.SetAttr("/big", SetAttr{Size: &size})
			must(t, err)
			return "abcab"
		},
		"replaced": func(t *testing.T, b *bench) string {
			b.write("/new", "mine")
			b.rename("/new", "/big")
			return "mine"
		},
	} {
		t.Run(name, func(t *testing.T) {
			on := true
			b := newSubstitutes(t, map[string]string{"big": "abc"}, &on)
			want := touch(t, b)
			if got := b.read("/big"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			base, err := b.Base("/big")
			must(t, err)
			if base == nil || base.Size != 3 {
				t.Fatalf("base is %+v", base)
			}
			content, err := b.BaseContent(base)
			must(t, err)
			defer content.Close()
			kept := make([]byte, 8)
			if n, _ := content.Read(kept); string(kept[:n]) != "abc" {
				t.Errorf("kept %q", kept[:n])
			}
			if ok, err := b.SourceMatches("/big", base); !ok || err != nil {
				t.Errorf("the source matches: %v, %v", ok, err)
			}
		})
	}
}

func TestASubstituteThatLosesItsNameStaysReadable(t *testing.T) {
	on := true
	b := newSubstitutes(t, map[string]string{"big": "abc"}, &on)
	o, err := b.Unlink("/big", true)
	must(t, err)
	defer o.Forget()
	f, i, err := o.Open(false)
	must(t, err)
	defer f.Close()
	if got, err := readFile(f, i.Size); got != "abcabc" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	w, i, err := o.Open(true)
	must(t, err)
	defer w.Close()
	if got, err := readFile(w, i.Size); got != "abcabc" || err != nil || i.Mode&unix.S_IFMT != unix.S_IFREG {
		t.Errorf("copied: %q, %v", got, err)
	}
}

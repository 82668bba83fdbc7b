package layer

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestAPlainStackHasNoSpecialFilesOfItsSource(t *testing.T) {
	b := newBench(t, map[string]string{"f": "1", "d/g": "2"}, func(o *Options) { o.Plain = true })
	must(t, unix.Symlink("f", b.source+"/l"))
	for _, p := range []string{"/pipe", "/d/pipe"} {
		must(t, unix.Mkfifo(b.source+p, 0o666))
		if _, err := b.Lookup(vpath.Path(p)); !errdefs.Is(err, errdefs.NotFound) {
			t.Errorf("Lookup(%s) = %v, want NotFound", p, err)
		}
	}
	for p, want := range map[string][]string{"/": {"d", "f", "l"}, "/d": {"g"}} {
		if got := b.names(p); !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", p, got, want)
		}
	}
}

func TestASourceAloneIsAReadOnlyStack(t *testing.T) {
	b := newBench(t, map[string]string{"f": "1", "d/g": "2"})
	s, err := Open(Options{Source: b.o.Source, ReadOnly: true})
	must(t, err)
	if i, err := s.Lookup("/d/g"); err != nil || i.Origin != Source || i.Size != 1 {
		t.Errorf("Lookup = %+v, %v", i, err)
	}
	f, _, err := s.Open("/f", false)
	must(t, err)
	must(t, f.Close())
	if _, _, err := s.Open("/f", true); err == nil {
		t.Error("a file was opened for writing")
	}
	if _, err := s.Mkdir("/new", 0o755); err == nil {
		t.Error("a directory was made")
	}
	if _, err := s.Unlink("/f", false); err == nil {
		t.Error("a file was removed")
	}
	if _, err := s.SetAttr("/f", SetAttr{Mode: new(uint32(0o600))}); err == nil {
		t.Error("a mode was changed")
	}
	if got := s.Statfs(); got != (Usage{}) {
		t.Errorf("Statfs = %+v", got)
	}
	must(t, s.Close())
	if _, err := Open(Options{Source: b.o.Source}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("without a directory for changes: %v", err)
	}
}

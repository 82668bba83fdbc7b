package layer

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestAReaderListsADirectoryOfFiguresOnce(t *testing.T) {
	files := map[string]string{}
	for n := range 20 {
		files["2026/11/"+strconv.Itoa(n)] = ""
	}
	b := newBench(t, files)
	b.close()
	b.o.ReadOnly = true
	b.open()
	look := func(name string) *casefold {
		t.Helper()
		_, err := b.Lookup(vpath.Path("/2026/11/" + name))
		must(t, err)
		return b.casefolds.m["/2026/11"]
	}
	first := look("0")
	first.readAt = time.Now().Add(time.Hour) // however long the test takes
	for n := range 20 {
		if look(strconv.Itoa(n)) != first {
			t.Fatalf("the directory was looked at anew for %d", n)
		}
	}
	must(t, os.WriteFile(b.src("2026/11/20"), nil, 0o600))
	if look("20") != first || len(first.names) != 21 {
		t.Errorf("of a new file it has %d names", len(first.names))
	}
	first.readAt = time.Now().Add(-sourceTTL)
	if look("0") == first {
		t.Error("it is known for longer than the source may answer by what it was")
	}
	for n := range 2 * maxCasefolds {
		b.casefold(vpath.Path("/" + strconv.Itoa(n)))
	}
	if len(b.casefolds.m) > maxCasefolds {
		t.Errorf("%d directories are known, at most %d", len(b.casefolds.m), maxCasefolds)
	}
}

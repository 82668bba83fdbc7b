package attack_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// Names are bytes. A name that looks like a hidden name is another name: it is absent if
// the source has only the hidden one, and output for people escapes a deceptive name.
func TestNamesThatLookAlike(t *testing.T) {
	eachHiding(t, namesThatLookAlike)
}

func namesThatLookAlike(t *testing.T, h hiding) {
	s := harness.New(t, binary, map[string]string{".env": "secret", "café.key": "secret", "plain": "plain"})
	untouched := s.Untouched()
	passes(t, s, lookAlikes, h.args(), append(h.flags(".env", "café.key"), "--preset", "full-access")...)
	untouched()
	for _, verb := range [][]string{{"diff", s.Name}, {"diff", s.Name, "--name-status"}, {"diff", s.Name, "--stat"}, {"files", "ls", s.Name}, {"apply", s.Name}} {
		out := agentfense(t, s, verb...)
		for _, r := range "\u200b\u200d\u202e\u2066" {
			if strings.ContainsRune(out, r) {
				t.Errorf("%v prints U+%04X as it is:\n%q", verb, r, out)
			}
		}
	}
	if got := s.Read(".env"); got != "secret" {
		t.Errorf(".env holds %q", got)
	}
	if got := s.Read(alikes[0]); got != alikes[0] {
		t.Errorf("%q holds %q", alikes[0], got)
	}
}

// alikes look like .env or café.key: by case, full width, a character of no
// width, of another direction, of another script, and by decomposition.
var alikes = []string{
	".ENV", ".Env", "．env", ".ｅｎｖ", ".env\u200b", ".e\u200dnv", "\u202evne.", "\u2066.env", ".env ", ".еnv", ".env\u00a0",
	"cafe\u0301.key", "CAFÉ.KEY",
}

var lookAlikes = program("look alikes", func(in *inside, args []string) {
	h := hidingOf(args)
	for _, name := range alikes {
		in.errno(fmt.Sprintf("stat %q before it is made", name), unix.Lstat(name, new(unix.Stat_t)), unix.ENOENT)
	}
	for _, name := range alikes {
		in.works("make", os.WriteFile(name, []byte(name), 0o644))
		data, err := os.ReadFile(name)
		in.works("read", err)
		in.is("content", string(data), name)
	}
	for _, name := range []string{".env", "café.key"} {
		in.errno("stat "+name, unix.Lstat(name, new(unix.Stat_t)), unix.ENOENT)
		in.errno("make "+name, opened(name, unix.O_CREAT|unix.O_WRONLY), h.making())
	}
	entries, err := os.ReadDir(".")
	in.works("list", err)
	want := len(alikes) + 1
	if h == hidesOwn {
		want += 2
	}
	in.is("entries", len(entries), want)
})

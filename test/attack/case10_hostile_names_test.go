package attack_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/test/harness"
)

// Names of any bytes, of the greatest length and at any depth are handled as bytes:
// created, read, hidden, recorded in the audit log without loss and without line breaks,
// applied and removed.
func TestHostileNames(t *testing.T) {
	eachHiding(t, useHostileNames)
}

func useHostileNames(t *testing.T, h hiding) {
	s := harness.New(t, binary, map[string]string{"plain": "plain"})
	passes(t, s, makeHostileNames, h.args(), append(h.flags("hidden*"), "--preset", "full-access")...)
	seen := map[string]bool{}
	for _, d := range s.Denials() {
		if strings.ContainsAny(d.Path, "\n\t\x1b") {
			t.Errorf("the audit log tells %q as it is", d.Path)
		}
		path, err := vpath.Unescape(d.Path)
		if err != nil {
			t.Error(err)
		}
		seen[path] = true
	}
	for _, name := range hostileNames {
		if !seen["/hidden"+name] && len(name) < 250 {
			t.Errorf("no refusal at %q is in the audit log", "/hidden"+name)
		}
	}
	agentfense(t, s, "audit", s.Name, "--verify")
	for _, out := range []string{
		agentfense(t, s, "diff", s.Name), agentfense(t, s, "diff", s.Name, "--json"), agentfense(t, s, "files", "ls", s.Name),
		agentfense(t, s, "audit", s.Name), agentfense(t, s, "apply", s.Name),
	} {
		if strings.ContainsAny(out, "\x1b\x07\r") || strings.Contains(out, "\n{\"event") {
			t.Errorf("a name is printed as it is: %q", out)
		}
	}
	for _, name := range hostileNames {
		if got := s.Read(name); got != name {
			t.Errorf("applied, %q holds %q", name, got)
		}
	}
	prints(t, s, "rm -rf -- * .[!.]* && ls -A", "", "--preset", "full-access")
	agentfense(t, s, "apply", s.Name)
	if entries, err := os.ReadDir(s.Source); err != nil || len(entries) != 0 {
		t.Errorf("left after removing all: %v, %v", entries, err)
	}
}

var hostileNames = []string{
	"new\nline", "tab\tbed", "\x1b[2J\x1b[1;1Hcleared", "\x1b]0;title\x07", "quote\"'`$(id)", "back\\slash", "carriage\rreturn",
	"-rf", "--", "*", "\xff\xfe not UTF-8", "half \xe2\x82", "\xed\xa0\x80 surrogate", strings.Repeat("n", 255), strings.Repeat("\xff", 255),
	"}\n{\"event\":\"applied\",\"forged\":true}", " ", "%s%n%d", "\u2028line", "a=>b", "'; rm -rf .; '",
}

var makeHostileNames = program("make hostile names", func(in *inside, args []string) {
	h := hidingOf(args)
	for _, name := range hostileNames {
		in.works("make", os.WriteFile(name, []byte(name), 0o644))
		data, err := os.ReadFile(name)
		in.works("read", err)
		in.is("content", string(data), name)
		if len(name) < 250 {
			in.errno(fmt.Sprintf("read hidden %q", name), opened("hidden"+name, unix.O_RDONLY), unix.ENOENT)
			in.errno(fmt.Sprintf("make hidden %q", name), opened("hidden"+name, unix.O_CREAT|unix.O_WRONLY), h.making())
		}
	}
	long := strings.Repeat("x", 256)
	in.errno("a name of 256 bytes", opened(long, unix.O_CREAT|unix.O_WRONLY), unix.ENAMETOOLONG)
	in.errno("stat of 256 bytes", unix.Lstat(long, new(unix.Stat_t)), unix.ENAMETOOLONG)
	in.errno("a path of 4096 bytes", opened(strings.Repeat("a/", 2048), unix.O_RDONLY), unix.ENAMETOOLONG)
	in.errno("a name of no bytes", opened("", unix.O_CREAT|unix.O_WRONLY), unix.ENOENT)
})

// A tree deeper than PATH_MAX is created, walked, listed, applied and removed.
func TestDeepTrees(t *testing.T) {
	eachHiding(t, useDeepTrees)
}

func useDeepTrees(t *testing.T, h hiding) {
	s := harness.New(t, binary, nil)
	passes(t, s, digDeep, h.args(), append(h.flags("hidden"), "--preset", "full-access")...)
	if got := strings.Count(agentfense(t, s, "diff", s.Name, "--name-status"), "\n"); got != 1 {
		t.Errorf("diff tells %d changes, want the file at the bottom", got)
	}
	agentfense(t, s, "apply", s.Name)
	prints(t, s, "find . -type f | wc -l; find . -name bottom | tr -cd / | wc -c", fmt.Sprintf("1\n%d\n", deep+1))
	prints(t, s, "rm -rf d && ls -A", "")
	agentfense(t, s, "apply", s.Name)
	if entries, err := os.ReadDir(s.Source); err != nil || len(entries) != 0 {
		t.Errorf("left after removing all: %v, %v", entries, err)
	}
}

// deep is the depth of a tree whose path is longer than PATH_MAX.
const deep = 2100

var digDeep = program("dig deep", func(in *inside, args []string) {
	h := hidingOf(args)
	for range deep {
		if err := unix.Mkdir("d", 0o755); err != nil {
			in.fail("mkdir: %v", err)
			return
		}
		if err := unix.Chdir("d"); err != nil {
			in.fail("chdir: %v", err)
			return
		}
	}
	in.works("write", os.WriteFile("bottom", []byte("bottom"), 0o644))
	data, err := os.ReadFile("bottom")
	in.works("read", err)
	in.is("content", string(data), "bottom")
	in.errno("hidden at the bottom", opened("hidden", unix.O_RDONLY), unix.ENOENT)
	in.errno("make hidden at the bottom", opened("hidden", unix.O_CREAT|unix.O_WRONLY), h.making())
	if h == hidesOwn {
		in.works("remove it again", os.Remove("hidden"))
	}
})

// Long paths of changes and denials fill neither the audit log nor the supervisor's memory.
func TestLongPathsAreNotListed(t *testing.T) {
	eachHiding(t, longPathsAreNotListed)
}

func longPathsAreNotListed(t *testing.T, h hiding) {
	s := harness.New(t, binary, nil)
	passes(t, s, useLongPaths, nil, append(h.flags("*.pem"), "--preset", "full-access")...)
	log := agentfense(t, s, "audit", s.Name, "--json")
	if len(log) > 1<<20 {
		t.Errorf("the log has %d bytes", len(log))
	}
	for _, want := range []string{`"omitted":`, `"operation":"various"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %s", want)
		}
	}
}

var useLongPaths = program("use long paths", func(in *inside, _ []string) {
	name := strings.Repeat("d", 250)
	for range 200 {
		in.works("mkdir", unix.Mkdir(name, 0o755))
		in.works("chdir", unix.Chdir(name))
	}
	for i := range 100 {
		in.works("write", os.WriteFile(fmt.Sprint(i), nil, 0o644))
		in.errno("stat", unix.Lstat(fmt.Sprint(i, ".pem"), new(unix.Stat_t)), unix.ENOENT)
	}
})

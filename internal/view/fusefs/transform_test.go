package fusefs_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// transforming is a policy in which everything may be written, but for the given rules.
func transforming(t testing.TB, more ...policy.Rule) *policy.Policy {
	t.Helper()
	all := []policy.Rule{{Pattern: "**", Permission: policy.Write}}
	for _, r := range more {
		if !r.Transform.IsZero() {
			r.Permission = policy.Read
		}
		r.Priority = 1
		all = append(all, r)
	}
	p, err := policy.Compile(all, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func redacts(pattern string, f policy.Format) policy.Rule {
	return policy.Rule{Pattern: pattern, Transform: policy.Transform{Redact: f}}
}

func substitutes(pattern, target string) policy.Rule {
	return policy.Rule{Pattern: pattern, Transform: policy.Transform{Substitute: target}}
}

func mountTransforming(t testing.TB, tr tree, rules ...policy.Rule) *view {
	t.Helper()
	source := t.TempDir()
	tr.make(t, source)
	return mountSource(t, source, func(o *fusefs.Options) { o.Policy = transforming(t, rules...) }, "**=write")
}

// hostWrite changes a file of the source.
func (v *view) hostWrite(rel, content string) {
	v.t.Helper()
	if err := os.WriteFile(filepath.Join(v.source, rel), []byte(content), 0o644); err != nil {
		v.t.Fatal(err)
	}
}

// absent checks that a path neither exists nor is listed.
func (v *view) absent(rel string) {
	v.t.Helper()
	if _, err := os.Lstat(v.path(rel)); !os.IsNotExist(err) {
		v.t.Errorf("lstat %s: %v, want none", rel, err)
	}
	if names := " " + v.names(filepath.Dir(rel)) + " "; strings.Contains(names, " "+filepath.Base(rel)+" ") {
		v.t.Errorf("%s is listed in %q", rel, names)
	}
}

func TestFilesShowOtherContents(t *testing.T) {
	v := mountTransforming(t, tree{
		".env": "KEY=secret\n", "a/.env": "A=1\nB=\"secret\"\n", "c.json": `{"k":"secret"}`, "c.yaml": "k: secret\n", "c.toml": "k='secret'\n",
		"bad/.env": "no assignment", "bad/big.json": `"` + strings.Repeat("x", 1<<20) + `"`, "bad/c.json": "\x00\x01",
		"s.env": "secret", "example": "KEY=example\n", "d/s.env": "secret", "d/example": "other", "link": "-> .env",
	},
		redacts(".env", policy.Env), redacts("*.json", policy.JSON), redacts("*.yaml", policy.YAML), redacts("*.toml", policy.TOML),
		substitutes("s.env", "example"))
	for rel, want := range map[string]string{
		".env": "KEY=***\n", "a/.env": "A=***\nB=***\n", "c.json": "{\n  \"k\": \"***\"\n}\n", "c.yaml": "k: \"***\"\n", "c.toml": "k = '***'\n",
		"s.env": "KEY=example\n", "d/s.env": "other", "link": "KEY=***\n",
	} {
		if got := v.read(rel); got != want {
			t.Errorf("%s shows %q, want %q", rel, got, want)
		}
		if st, err := os.Stat(v.path(rel)); err != nil || st.Size() != int64(len(want)) || st.Mode().Perm() != 0o444 {
			t.Errorf("%s: %v, %v", rel, st, err)
		}
	}
	for _, rel := range []string{"bad/.env", "bad/big.json", "bad/c.json"} {
		v.absent(rel)
	}
	if got := v.names("d"); got != "example s.env" {
		t.Errorf("d lists %q", got)
	}
}

// The substitute must be readable as it is, so chains and loops end at once.
func TestASubstituteThatIsNotShownIsAbsent(t *testing.T) {
	v := mountTransforming(t, tree{"a": "1", "b": "2", "c": "3", "d": "4", "hidden": "5", "viewed": "6", "e": "7", "f": "8", "g": "9", "h": "10", "link": "-> hidden", "dir/": ""},
		substitutes("/a", "/b"), substitutes("/b", "/a"), substitutes("/c", "/c"), substitutes("/d", "/hidden"), substitutes("/e", "/viewed"),
		substitutes("/f", "/link"), substitutes("/g", "/dir"), substitutes("/h", "/none"),
		policy.Rule{Pattern: "/hidden", Permission: policy.None}, policy.Rule{Pattern: "/viewed", Permission: policy.View})
	for name := range strings.SplitSeq("a b c d e f g h", " ") {
		if got, err := os.ReadFile(v.path(name)); !os.IsNotExist(err) {
			t.Errorf("%s shows %q, %v", name, got, err)
		}
	}
}

func TestWhatShowsOtherContentIsReadOnly(t *testing.T) {
	v := mountTransforming(t, tree{"dir/.env": "A=secret\n", "bad/.env": "x", "plain": "y"}, redacts(".env", policy.Env))
	got := v.guest(`(
		echo x > dir/.env; echo x >> bad/.env; chmod 600 dir/.env; touch dir/.env; rm -f dir/.env; mv dir/.env moved; ln dir/.env linked
		truncate -s 0 dir/.env; mv plain dir/.env; mkdir bad/.env; mv bad moved; rm -r bad; rmdir dir; mv dir moved; echo > new/.env; ls
	) 2>/dev/null; cat dir/.env`)
	if want := "bad\ndir\nmoved\nplain\nA=***"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for rel, want := range map[string]string{"dir/.env": "A=secret\n", "bad/.env": "x"} {
		if b, err := os.ReadFile(filepath.Join(v.source, rel)); string(b) != want || err != nil {
			t.Errorf("the source's %s has %q, %v", rel, b, err)
		}
	}
	changes, err := v.layer.Changes()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if strings.HasSuffix(string(c.Path), ".env") {
			t.Errorf("%v is a change", c)
		}
	}
}

// everyRead returns what each call reads of an open file. out is a file that it may write.
func everyRead(t *testing.T, fd int, out string) map[string]string {
	t.Helper()
	got := map[string]string{}
	buf := make([]byte, 100)
	n, err := unix.Pread(fd, buf, 0)
	got["pread"] = string(buf[:max(n, 0)]) + errText(err)
	n, err = unix.Preadv2(fd, [][]byte{buf}, 0, unix.RWF_HIPRI)
	got["preadv2"] = string(buf[:max(n, 0)]) + errText(err)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	got["mmap"] = string(page)
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	for name, copied := range map[string]func(to int) error{
		"copy_file_range": func(to int) error {
			var off int64
			_, err := unix.CopyFileRange(fd, &off, to, nil, 100, 0)
			return err
		},
		"sendfile": func(to int) error { var off int64; _, err := unix.Sendfile(to, fd, &off, 100); return err },
		"splice": func(to int) error {
			var p [2]int
			if err := unix.Pipe2(p[:], 0); err != nil {
				return err
			}
			defer unix.Close(p[0])
			defer unix.Close(p[1])
			var off int64
			n, err := unix.Splice(fd, &off, p[1], nil, 100, 0)
			if err == nil {
				_, err = unix.Splice(p[0], nil, to, nil, int(n), 0)
			}
			return err
		},
		"FICLONE": func(to int) error { return unix.IoctlFileClone(to, fd) },
	} {
		to, err := unix.Open(out, unix.O_CREAT|unix.O_TRUNC|unix.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		err = copied(to)
		n, _ := unix.Pread(to, buf, 0)
		got[name] = string(buf[:max(n, 0)]) + errText(err)
		unix.Close(to)
	}
	end, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
	if err != nil || end != st.Size {
		t.Errorf("the hole is at %d, %v, want %d", end, err, st.Size)
	}
	if _, err := unix.Seek(fd, st.Size, unix.SEEK_DATA); err != unix.ENXIO {
		t.Errorf("data behind the end: %v", err)
	}
	return got
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return " " + err.Error()
}

func TestNoCallReadsTheContent(t *testing.T) {
	v := mountTransforming(t, tree{"r.env": "KEY=secret\n", "s.env": "KEY=secret\n", "example": "KEY=***\n"},
		redacts("r.env", policy.Env), substitutes("s.env", "example"))
	for _, name := range []string{"r.env", "s.env"} {
		fd, err := unix.Open(v.path(name), unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for call, got := range everyRead(t, fd, v.path("out")) {
			if want := "KEY=***\n"; got != want && call != "FICLONE" || strings.Contains(got, "secret") {
				t.Errorf("%s of %s: %q, want %q", call, name, got, want)
			}
		}
		unix.Close(fd)
	}
}

func TestAChangeOfTheSourceShows(t *testing.T) {
	v := mountTransforming(t, tree{".env": "A=1\n", "s.env": "x", "example": "one"}, redacts(".env", policy.Env), substitutes("s.env", "example"))
	is := func(rel, want string) {
		t.Helper()
		testenv.Eventually(t, rel+" shows "+want, func() bool {
			b, err := os.ReadFile(v.path(rel))
			st, statErr := os.Stat(v.path(rel))
			return err == nil && string(b) == want && statErr == nil && st.Size() == int64(len(want))
		})
	}
	is(".env", "A=***\n")
	v.hostWrite(".env", "A=2\nB=3\n")
	is(".env", "A=***\nB=***\n")
	v.hostWrite(".env", "no assignment")
	testenv.Eventually(t, ".env is absent", func() bool {
		_, err := os.Lstat(v.path(".env"))
		return os.IsNotExist(err) && v.names(".") == "example s.env"
	})
	v.hostWrite("other", "C=1\n")
	if err := os.Rename(filepath.Join(v.source, "other"), filepath.Join(v.source, ".env")); err != nil {
		t.Fatal(err)
	}
	is(".env", "C=***\n")
	testenv.Eventually(t, ".env is listed", func() bool { return v.names(".") == ".env example s.env" })

	is("s.env", "one")
	v.hostWrite("example", "three")
	is("s.env", "three")
}

// What a program writes to the substitute shows at once.
func TestASubstituteChangesInside(t *testing.T) {
	v := mountTransforming(t, tree{"s.env": "secret", "example": "one"}, substitutes("s.env", "example"))
	if got := v.guest("cat s.env; printf three > example; cat s.env; printf four >> example; cat s.env; rm example; cat s.env 2>&1; printf five > example; cat s.env"); got != "onethreethreefourcat: s.env: No such file or directory\nfive" {
		t.Errorf("got %q", got)
	}
}

// heldFile reads an open and mapped file.
type heldFile struct {
	t    *testing.T
	fd   int
	page []byte
}

func (v *view) hold(rel string) *heldFile {
	v.t.Helper()
	t := v.t.(*testing.T)
	fd, err := unix.Open(v.path(rel), unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(page); unix.Close(fd) })
	return &heldFile{t, fd, page}
}

// tells checks what a descriptor and a mapping of the file show, which was opened when it
// showed another content: want, or nothing.
func (h *heldFile) tells(want string) {
	h.t.Helper()
	buf := make([]byte, 100)
	n, err := unix.Pread(h.fd, buf, 0)
	if got := string(buf[:max(n, 0)]); got != want && err != unix.ESTALE {
		h.t.Errorf("the descriptor reads %q, %v, want %q", got, err, want)
	}
	if got := h.mapped(); got != want && got != "SIGBUS" {
		h.t.Errorf("the mapping has %q, want %q", got, want)
	}
}

func (h *heldFile) mapped() (content string) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			content = "SIGBUS"
		}
	}()
	return string(bytes.TrimRight(bytes.Clone(h.page), "\x00"))
}

func TestAnotherPolicyChangesTheContentOfOpenFiles(t *testing.T) {
	v := mountTransforming(t, tree{".env": "A=secret\n", "delta.env": "x", "example": "E=1\n"})
	v.write("delta.env", "B=secret\n")
	source, delta := v.hold(".env"), v.hold("delta.env")
	for _, step := range []struct {
		rules         []policy.Rule
		source, delta string
	}{
		{nil, "A=secret\n", "B=secret\n"},
		{[]policy.Rule{redacts("*.env", policy.Env)}, "A=***\n", "B=***\n"},
		{[]policy.Rule{substitutes("*.env", "example")}, "E=1\n", "E=1\n"},
		{[]policy.Rule{redacts(".env", policy.Env), redacts("delta.env", policy.Env)}, "A=***\n", "B=***\n"},
		{nil, "A=secret\n", "B=secret\n"},
	} {
		v.SetPolicy(transforming(t, step.rules...))
		for rel, want := range map[string]string{".env": step.source, "delta.env": step.delta} {
			if got := v.read(rel); got != want {
				t.Errorf("%s shows %q, want %q", rel, got, want)
			}
		}
		source.tells(step.source)
		delta.tells(step.delta)
	}
}

// A file of which one name is redacted is not readable by its other names, whichever of them
// the kernel learns first.
func TestAHardLinkDoesNotTellTheContent(t *testing.T) {
	for _, all := range []string{".env read.txt", "1.txt z.env 2.txt", ".env written", ".env read.txt written dir/.env dir/c.json"} {
		names := strings.Fields(all)
		for first := range names {
			v := mountTransforming(t, tree{"x": ""})
			v.makeLinked(names, "A=secret")
			v.SetPolicy(transforming(t, redacts("*.env", policy.Env), redacts("*.json", policy.JSON), policy.Rule{Pattern: "*.txt", Permission: policy.Read}))
			order := strings.Join(append(slices.Clone(names[first:]), names[:first]...), " ")
			if got := v.guest("cat " + order + " 2>/dev/null"); strings.Contains(got, "secret") {
				t.Errorf("cat %s shows %q", order, got)
			}
		}
	}
}

// makeLinked makes a file with several names in the delta. The kernel does not know of it.
func (v *view) makeLinked(names []string, content string) {
	v.t.Helper()
	first := vpath.Path("/" + names[0])
	_, err := v.layer.Mkdir("/dir", 0o755)
	if err == nil {
		f, _, createErr := v.layer.Create(first, 0o644)
		if err = createErr; err == nil {
			_, err = f.WriteAt([]byte(content), 0)
			f.Close()
		}
	}
	for _, name := range names[1:] {
		if err == nil {
			_, err = v.layer.Link(first, vpath.Path("/"+name))
		}
	}
	if err != nil {
		v.t.Fatal(err)
	}
}

func TestTheSourcesOtherNameFollowsItsOwnRule(t *testing.T) {
	source := t.TempDir()
	tree{".env": "A=secret\n"}.make(t, source)
	if err := os.Link(filepath.Join(source, ".env"), filepath.Join(source, "copy.env")); err != nil {
		t.Fatal(err)
	}
	v := mountSource(t, source, func(o *fusefs.Options) {
		o.Policy = transforming(t, redacts(".env", policy.Env), substitutes("copy.env", "x"))
	}, "**=write")
	if got := v.guest("cat .env; cat copy.env 2>/dev/null; cat .env"); got != "A=***\nA=***" {
		t.Errorf("got %q", got)
	}
}

func TestWarmReadsOfMaskedFilesCostAsMuchAsOthers(t *testing.T) {
	v := mountTransforming(t, tree{"a.env": "A=1\n", "b.env": "B=1\n", "a.txt": "A=1\n", "b.txt": "B=1\n"}, redacts("*.env", policy.Env))
	warm := func(kind string) map[string]uint64 {
		v.guest("cat *." + kind + "; stat *." + kind)
		return v.requests(func() { v.guest("cat *." + kind + "; stat *." + kind) })
	}
	if masked, plain := warm("env"), warm("txt"); !maps.Equal(masked, plain) || masked["read"] > 0 || masked["lookup"] > 0 {
		t.Errorf("warm, masked files cause %v, others %v", masked, plain)
	}
}

// The layer makes the content, and the view checks by node what it serves: it serves nothing
// if the layer does not know of the rule.
func TestTheViewServesNoContentOfAnotherKind(t *testing.T) {
	files := tree{}
	for i := range 20 {
		files[fmt.Sprintf("%02d.txt", 2*i)] = "plain"
		files[fmt.Sprintf("%02d.env", 2*i+1)] = "A=secret\n"
	}
	v := mountTransforming(t, files, redacts("*.env", policy.Env))
	v.layer.SetTransforms(nil)
	for range 2 {
		for name := range strings.FieldsSeq(v.names(".")) { // in the order in which siblings are stored ahead
			b, err := os.ReadFile(v.path(name))
			if strings.HasSuffix(name, ".env") && !errors.Is(err, unix.EACCES) || strings.Contains(string(b), "secret") {
				t.Errorf("%s shows %q, %v", name, b, err)
			}
		}
	}
	fd, err := unix.Open(v.path("01.env"), unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to, err := unix.Open(v.path("out"), unix.O_CREAT|unix.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(to)
	if _, err := unix.CopyFileRange(fd, nil, to, nil, 100, 0); err != unix.EACCES {
		t.Errorf("copy_file_range: %v", err)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_DATA); err != unix.EACCES {
		t.Errorf("lseek: %v", err)
	}
}

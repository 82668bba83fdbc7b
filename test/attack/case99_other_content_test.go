package attack_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// hiddenValue is what files have of which the policy shows another content.
const hiddenValue = "4f5e-hidden-value-9b71"

// otherContent is a policy that shows files with masked values and with the content of another
// file. All of them have hiddenValue.
const otherContent = `version: 1
rules:
  - {pattern: "**", permission: write}
  - {pattern: "*.env", redact: env, priority: 1}
  - {pattern: "*.json", redact: json, priority: 1}
  - {pattern: "*.yaml", redact: yaml, priority: 1}
  - {pattern: "*.toml", redact: toml, priority: 1}
  - {pattern: "*.local", substitute: /example, priority: 1}
  - {pattern: "*.loop", substitute: /a.local, priority: 1}
`

func hiddenFiles() map[string]string {
	files := map[string]string{
		"a.env":  "KEY=" + hiddenValue + "\nexport B='x\n" + hiddenValue + "\n' # " + hiddenValue + "\n",
		"a.json": `{"k": ["` + hiddenValue + `", {"n": "` + hiddenValue + `"}]}`, "a.yaml": "k: &" + hiddenValue + " !" + hiddenValue + " " + hiddenValue + " # " + hiddenValue + "\n",
		"a.toml": "# " + hiddenValue + "\nk = '" + hiddenValue + "'\n", "a.local": hiddenValue, "a.loop": hiddenValue,
		"bad.env": hiddenValue, "bad.json": hiddenValue + "]", "bad.yaml": "a: [" + hiddenValue, "bad.toml": hiddenValue,
		"example": "KEY=example\n",
	}
	for name, content := range files {
		files["d/"+name] = content
	}
	return files
}

// What a policy shows with another content cannot be read in any way.
func TestAnotherContentIsAllThatIsShown(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, hiddenFiles(), who...)
		policy := filepath.Join(filepath.Dir(s.Home), "other-content.yaml")
		if err := os.WriteFile(policy, []byte(otherContent), 0o644); err != nil {
			t.Fatal(err)
		}
		untouched := s.Untouched()
		passes(t, s, searchForValue, nil, "--policy", policy)
		untouched()
		if s.Denied("/a.env") == 0 {
			t.Errorf("refusals are missing in the audit log: %v", s.Denials())
		}
		agentfense(t, s, "apply", s.Name)
		if got := s.Read("a.local"); got != hiddenValue {
			t.Errorf("applied, a.local has %q", got)
		}
		err := filepath.WalkDir(s.Home, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if b, _ := os.ReadFile(path); hasValue(b) {
					t.Errorf("%s has the value", path)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func hasValue(b []byte) bool {
	middle := []byte(hiddenValue[4 : len(hiddenValue)-4])
	forms := [][]byte{middle, []byte(hex.EncodeToString(middle))}
	for skip := range 3 {
		text := base64.RawStdEncoding.EncodeToString(middle[skip:])
		forms = append(forms, []byte(text[:len(text)-4]))
	}
	for _, f := range forms {
		if bytes.Contains(b, f) {
			return true
		}
	}
	return false
}

// searchForValue reads all that it can reach, and tries each call that reads, moves or links
// data on the files that show another content.
var searchForValue = program("search for value", func(in *inside, _ []string) {
	found, files := 0, 0
	look := func(what string, b []byte) {
		if in.checks++; hasValue(b) {
			found++
			in.fail("%s tells the value", what)
		}
	}
	shown, absent := 0, 0
	for _, dir := range []string{".", "d"} {
		for name := range strings.FieldsSeq("a.env a.json a.yaml a.toml a.local a.loop bad.env bad.json bad.yaml bad.toml") {
			path := filepath.Join(dir, name)
			if err := unix.Stat(path, new(unix.Stat_t)); err != nil {
				in.errno("stat "+path, err, unix.ENOENT)
				in.errno("create "+path, opened(path, unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
				absent++
				continue
			}
			shown++
			searchFile(in, path, look)
		}
	}
	in.is("files that are shown", shown, 10)
	in.is("files that are absent", absent, 10)
	own, err := os.Executable()
	in.works("own path", err)
	for _, root := range []string{".", "/proc/self", "/run", "/etc", "/tmp", "/dev/shm", "/home"} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || path == own || strings.HasSuffix(path, "/mem") {
				return nil //nolint:nilerr // it cannot be read
			}
			if info, err := d.Info(); err != nil || info.Size() > 16<<20 {
				return nil //nolint:nilerr // no file of the test
			}
			b, err := os.ReadFile(path)
			if err == nil && !strings.HasPrefix(path, "/proc") {
				files++
				look(path, b)
			}
			return nil
		})
	}
	if files < 10 {
		in.fail("read %d files only", files)
	}
})

// searchFile tries the calls on one file.
func searchFile(in *inside, path string, look func(string, []byte)) {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	in.works("open "+path, err)
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	for name, read := range map[string]func() (int, error){
		"pread":         func() (int, error) { return unix.Pread(fd, buf, 0) },
		"pread, behind": func() (int, error) { return unix.Pread(fd, buf, 8) },
		"preadv2":       func() (int, error) { return unix.Preadv2(fd, [][]byte{buf}, 0, unix.RWF_NOWAIT) },
	} {
		n, _ := read()
		look(name+" of "+path, buf[:max(n, 0)])
	}
	if page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED); err == nil {
		look("mmap of "+path, page) // of which the rest behind the end is zero
		_ = unix.Munmap(page)
	}
	moved(in, path, fd, look)
	for name, other := range map[string]func() (int, error){
		"/proc/self/fd": func() (int, error) { return unix.Open(procFD(fd), unix.O_RDONLY, 0) },
		"O_DIRECT":      func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0) },
		"/proc/self/cwd": func() (int, error) {
			return unix.Open("/proc/self/cwd/"+path, unix.O_RDONLY, 0)
		},
	} {
		again, err := other()
		if err != nil {
			continue
		}
		n, _ := unix.Pread(again, buf, 0)
		look(name+" of "+path, buf[:max(n, 0)])
		unix.Close(again)
	}
	for name, err := range map[string]error{
		"write": opened(path, unix.O_RDWR), "truncate": unix.Truncate(path, 0), "chmod": unix.Chmod(path, 0o600), "unlink": unix.Unlink(path),
		"rename": unix.Rename(path, "moved"), "reopen": opened(procFD(fd), unix.O_RDWR),
	} {
		in.errno(name+" "+path, err, unix.EACCES)
	}
	in.refused("link "+path, unix.Link(path, "linked"), unix.EACCES, unix.EXDEV, unix.EPERM)
	in.refused("link by descriptor "+path, unix.Linkat(unix.AT_FDCWD, procFD(fd), unix.AT_FDCWD, "linked", unix.AT_SYMLINK_FOLLOW), unix.EACCES, unix.EXDEV, unix.EPERM)
	in.refused("exchange "+path, unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, "example", unix.RENAME_EXCHANGE), unix.EACCES)
}

// moved has the kernel move the content of a file to another one.
func moved(in *inside, path string, fd int, look func(string, []byte)) {
	for name, move := range map[string]func(to int) error{
		"copy_file_range": func(to int) error {
			var off int64
			_, err := unix.CopyFileRange(fd, &off, to, nil, 4096, 0)
			return err
		},
		"sendfile": func(to int) error {
			var off int64
			_, err := unix.Sendfile(to, fd, &off, 4096)
			return err
		},
		"clone":       func(to int) error { return unix.IoctlFileClone(to, fd) },
		"clone range": func(to int) error { return unix.IoctlFileCloneRange(to, &unix.FileCloneRange{Src_fd: int64(fd)}) },
		"splice": func(to int) error {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_NONBLOCK); err != nil {
				return err
			}
			defer unix.Close(p[0])
			defer unix.Close(p[1])
			var off int64
			n, err := unix.Splice(fd, &off, p[1], nil, 4096, 0)
			if err == nil {
				_, err = unix.Splice(p[0], nil, to, nil, int(n), 0)
			}
			return err
		},
	} {
		to, err := unix.Open("out", unix.O_CREAT|unix.O_TRUNC|unix.O_RDWR, 0o644)
		in.works("open out", err)
		if err = move(to); strings.HasPrefix(name, "clone") {
			in.refused(name+" "+path, err, unix.EOPNOTSUPP, unix.ENOTTY, unix.EXDEV, unix.EINVAL)
		} else {
			in.errno(name+" "+path, err, 0)
		}
		buf := make([]byte, 4096)
		n, _ := unix.Pread(to, buf, 0)
		look(name+" of "+path, buf[:max(n, 0)])
		unix.Close(to)
	}
}

// New rules of a running sandbox also apply to its open files and mappings.
func TestAFileThatShowsAnotherContentNowDoesSoToItsHolder(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"dir/f": "A=hunter", "example": "E=1"})
	d := s.Talk(holdOpen, nil, "--preset", "full-access")
	for _, line := range []string{"read", "map"} {
		if got := d.Ask(line); !strings.Contains("A=hunter", got) || got == "" {
			t.Fatalf("%s: %q", line, got)
		}
	}
	policy := filepath.Join(filepath.Dir(s.Home), "redact.yaml")
	for _, rule := range []string{"redact: env", "substitute: /example"} {
		text := "version: 1\nrules:\n  - {pattern: '**', permission: write}\n  - {pattern: /dir/f, " + rule + "}\n"
		if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := s.Run("true", "--policy", policy); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		shows := map[string]string{"redact: env": "A=***|", "substitute: /example": "E=1"}[rule]
		if got := d.Ask("read"); got != shows && got != "ESTALE" {
			t.Errorf("read, with %s: %q, want %q", rule, got, shows)
		}
		if got := strings.TrimRight(d.Ask("map"), "\x00"); got != shows && got != "SIGBUS" {
			t.Errorf("map, with %s: %q, want %q", rule, got, shows)
		}
		for _, line := range []string{"write", "truncate", "open again"} {
			if got := d.Ask(line); got != "EACCES" && got != "ESTALE" {
				t.Errorf("%s, with %s: %q", line, rule, got)
			}
		}
	}
	if r := d.End(); r.Code != 0 {
		t.Error(r.Stderr)
	}
}

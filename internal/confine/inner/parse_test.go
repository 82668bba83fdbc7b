package inner_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// outer is a program at /work of a sandbox in which /lib64 is a link.
func outer(files ...string) inner.Outer {
	return inner.Outer{
		UID: 1000, GID: 1000, Dir: "/work", Env: []string{"HOME=/home/user", "A=1", "PWD=/elsewhere"},
		Read: func(fd int) (string, error) {
			if fd < 3 || fd-3 >= len(files) {
				return "", errors.New("bad file descriptor")
			}
			return files[fd-3], nil
		},
		Link: func(path string) string { return map[string]string{"/lib64": "usr/lib64"}[path] },
	}
}

func TestParse(t *testing.T) {
	const (
		ro = inner.ReadOnly
		rw = inner.Writable
	)
	step := func(kind inner.Kind, path string) inner.Step { return inner.Step{Kind: kind, Path: inner.Text(path)} }
	null := func(path string) inner.Step { return inner.Step{Kind: inner.File, Path: inner.Text(path), Mode: 0o444} }
	tmpfs := func(path string, mode uint32) inner.Step {
		return inner.Step{Kind: inner.Empty, Path: inner.Text(path), Mode: mode}
	}
	for _, tt := range []struct {
		name  string
		args  string
		files []string
		want  []inner.Step
		noNet bool
		err   string
	}{
		{name: "the sandbox of Codex", args: "--new-session --die-with-parent --ro-bind / / --dev /dev --bind /work /work --bind /tmp /tmp --ro-bind /work/.git /work/.git --perms 555 --tmpfs /work/.codex --remount-ro /work/.codex --unshare-user --unshare-pid --unshare-net --proc /proc -- sh", want: []inner.Step{
			step(ro, "/"), step(rw, "/work"), step(rw, "/tmp"), step(ro, "/work/.git"), tmpfs("/work/.codex", 0o555), step(inner.Freeze, "/work/.codex"),
		}, noNet: true},
		{name: "the sandbox of Claude Code", args: "--new-session --die-with-parent --unshare-net --bind /tmp/claude-http.sock /tmp/claude-http.sock --setenv HTTP_PROXY http://localhost:3128 --ro-bind / / --bind /work /work --ro-bind /work/.git/hooks /work/.git/hooks --ro-bind /dev/null /work/.bashrc --tmpfs /home/user/.ssh --dev /dev --unshare-pid --proc /proc -- /bin/bash -c x", want: []inner.Step{
			step(rw, "/tmp/claude-http.sock"), step(ro, "/"), step(rw, "/work"), step(ro, "/work/.git/hooks"), null("/work/.bashrc"), tmpfs("/home/user/.ssh", 0o755),
		}, noNet: true},
		{name: "paths are cleaned, and relative sources are of the working directory", args: "--bind sub/../x /work//x --ro-bind . work sh", want: []inner.Step{step(rw, "/work/x"), step(ro, "/work")}},
		{name: "what may be missing", args: "--bind-try /a /a --ro-bind-try /b /b --dev-bind-try /c /c sh", want: []inner.Step{
			{Kind: rw, Path: "/a", Optional: true}, {Kind: ro, Path: "/b", Optional: true}, {Kind: rw, Path: "/c", Optional: true},
		}},
		{name: "contents", args: "--perms 0000 --ro-bind-data 3 /work/.env --file 4 /tmp/x sh", files: []string{"", "text"}, want: []inner.Step{
			{Kind: inner.File, Path: "/work/.env"}, {Kind: inner.File, Path: "/tmp/x", Content: "text", Own: true, Mode: 0o666},
		}},
		{name: "arguments in a descriptor", args: "--args 3 --tmpfs /b sh", files: []string{"--ro-bind\x00/\x00/\x00"}, want: []inner.Step{step(ro, "/"), tmpfs("/b", 0o755)}},
		{name: "a size", args: "--size 4096 --perms 1777 --tmpfs /tmp --dir /tmp/x sh", want: []inner.Step{
			{Kind: inner.Empty, Path: "/tmp", Mode: 0o1777, Size: 4096}, {Kind: inner.Dir, Path: "/tmp/x", Mode: 0o755},
		}},
		{name: "what every inner sandbox has", args: "--unshare-all --share-net --hostname here --uid 1000 --gid 1000 --cap-drop ALL --as-pid-1 --disable-userns --symlink usr/lib64 /lib64 sh"},
		{name: "no network", args: "--unshare-all sh", noNet: true},

		{name: "another place", args: "--bind /etc /work sh", err: "--bind /etc /work: a place can only be bound to itself"},
		{name: "another place read-only", args: "--ro-bind /etc/passwd /work/x sh", err: "can only be bound to itself"},
		{name: "dots that lead out", args: "--ro-bind /work/../etc /work/x sh", err: "can only be bound to itself"},
		{name: "nothing to write to", args: "--bind /dev/null /work/x sh", err: "can only be bound to itself"},
		{name: "another link", args: "--symlink /etc /lib64 sh", err: "--symlink /etc /lib64: only a link that is there"},
		{name: "another dev", args: "--dev /work/dev sh", err: "--dev /work/dev: only possible at /dev"},
		{name: "another proc", args: "--proc /work sh", err: "only possible at /proc"},
		{name: "another user", args: "--unshare-user --uid 0 sh", err: "--uid 0: only the sandbox's own id is possible, 1000"},
		{name: "a filter", args: "--seccomp 3 sh", err: "--seccomp: a filter of system calls cannot be added"},
		{name: "a capability", args: "--cap-add ALL sh", err: "--cap-add: no capability can be given"},
		{name: "an unknown option", args: "--overlay-src /a sh", err: "--overlay-src: this option is not possible inside a sandbox; see"},
		{name: "too few arguments", args: "--bind /a", err: "--bind takes 2 arguments"},
		{name: "no command", args: "--bind /a /a", err: "no command"},
		{name: "a mode without use", args: "--perms 000 --bind /a /a sh", err: "--perms or --size before it has no meaning"},
		{name: "a mode at the end", args: "--perms 000 -- sh", err: "without an option after it"},
		{name: "a bad mode", args: "--perms 9 --tmpfs /a sh", err: "not an octal mode"},
		{name: "a bad size", args: "--size -1 --tmpfs /a sh", err: "not a number of bytes"},
		{name: "a descriptor that is closed", args: "--ro-bind-data 7 /a sh", err: "--ro-bind-data 7: bad file descriptor"},
		{name: "a command among options", args: "--args 3 sh", files: []string{"--ro-bind\x00/\x00/\x00evil"}, err: "it must hold options only"},
		{name: "a shared network alone", args: "--share-net sh", err: "--share-net goes with --unshare-all only"},
		{name: "a user without a namespace", args: "--uid 1000 sh", err: "go with --unshare-user only"},
		{name: "a host name of another form", args: "--unshare-uts --hostname a/b sh", err: "host name \"a/b\""},
		{name: "too many paths", args: strings.Repeat("--tmpfs /a ", 513) + "sh", err: "513 paths to bind or hide: at most 512"},
		{name: "too many arguments", args: strings.Repeat("--unshare-pid ", 9000) + "sh", err: "more than 9000 arguments"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := inner.Parse(strings.Fields(tt.args), outer(tt.files...))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, r.Steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if r.NoNet != tt.noNet {
				t.Errorf("no network: got %v, want %v", r.NoNet, tt.noNet)
			}
		})
	}
}

func TestParseCommand(t *testing.T) {
	parse := func(args ...string) *inner.Request {
		t.Helper()
		r, err := inner.Parse(args, outer())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := parse("--setenv", "A", "2", "--unsetenv", "HOME", "--", "--odd", "arg")
	if !slices.Equal(r.Command, []inner.Text{"--odd", "arg"}) || !slices.Equal(r.Env, []inner.Text{"PWD=/elsewhere", "A=2"}) {
		t.Errorf("command %q, environment %q", r.Command, r.Env)
	}
	if !slices.Equal(r.Dirs, []inner.Text{"/work", "/"}) {
		t.Errorf("directories %q", r.Dirs)
	}
	if r := parse("--clearenv", "--setenv", "B", "3", "--chdir", "/tmp", "x"); !slices.Equal(r.Env, []inner.Text{"PWD=/elsewhere", "B=3"}) || !slices.Equal(r.Dirs, []inner.Text{"/tmp"}) {
		t.Errorf("environment %q, directories %q", r.Env, r.Dirs)
	}
	for arg, want := range map[string]error{"--help": inner.ErrHelp, "--version": inner.ErrVersion} {
		if _, err := inner.Parse([]string{arg}, outer()); !errors.Is(err, want) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if help := inner.Help(); !strings.Contains(help, "--ro-bind PATH PATH") || strings.Contains(help, "--cap-add") {
		t.Errorf("help:\n%s", help)
	}
}

// FuzzArgv reads any arguments and compares what they mean with a model of bubblewrap: the last
// mount over a path is what is there, nothing is there before the first, and each shows at most
// what the sandbox has.
func FuzzArgv(f *testing.F) {
	f.Add("--ro-bind\n/\n/\n--bind\n/work\n/work\n--ro-bind\n/work/.git\n/work/.git\nsh")
	f.Add("--args\n3\n--tmpfs\n/\n--dev-bind\n/work\n/work\n--ro-bind\n/dev/null\n/work/x\n--\nsh")
	f.Add("--bind\n/etc\n/work\nsh")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		r, err := inner.Parse(args, outer("--tmpfs\x00/work\x00"))
		if err != nil {
			return
		}
		if err := r.Check(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		probes := []string{"/", "/work", "/work/.git", "/work/x", "/work/.git/config", "/etc", "/tmp/a"}
		for _, s := range r.Steps {
			probes = append(probes, string(s.Path), string(s.Path)+"/below")
		}
		for _, p := range probes {
			got, want := accessOf(r.Steps, p), model(args, p)
			if got != want {
				t.Fatalf("%q: at %q: got %v, want %v", args, p, got, want)
			}
		}
	})
}

// model says what is at a path according to arguments of bubblewrap that were accepted.
func model(args []string, path string) inner.Kind {
	var kind inner.Kind
	covers := func(at string) bool {
		at = "/" + strings.Join(clean(at), "/")
		return at == "/" || path == at || strings.HasPrefix(path, at+"/")
	}
	for i := 0; i < len(args) && strings.HasPrefix(args[i], "--") && args[i] != "--"; i++ {
		switch name := args[i]; name {
		case "--bind", "--bind-try", "--dev-bind", "--dev-bind-try", "--ro-bind", "--ro-bind-try":
			if covers(args[i+2]) {
				kind = inner.Writable
				if strings.HasPrefix(name, "--ro") {
					kind = inner.ReadOnly
				}
				if from := clean(args[i+1]); slices.Equal(from, []string{"dev", "null"}) && !slices.Equal(from, clean(args[i+2])) {
					kind = inner.File
				}
			}
			i += 2
		case "--file", "--bind-data", "--ro-bind-data":
			if covers(args[i+2]) {
				kind = inner.File
			}
			i += 2
		case "--tmpfs":
			if covers(args[i+1]) {
				kind = inner.Empty
			}
			i++
		case "--args":
			if covers("/work") && args[i+1] == strconv.Itoa(3) {
				kind = inner.Empty
			}
			i++
		case "--symlink", "--setenv":
			i += 2
		case "--dir", "--remount-ro", "--dev", "--proc", "--perms", "--size", "--chdir", "--unsetenv", "--hostname", "--uid", "--gid", "--cap-drop", "--sync-fd":
			i++
		}
	}
	return kind
}

// clean returns the elements of a path without dots.
func clean(path string) (elements []string) {
	for e := range strings.SplitSeq(path, "/") {
		switch e {
		case "", ".":
		case "..":
			elements = elements[:max(0, len(elements)-1)]
		default:
			elements = append(elements, e)
		}
	}
	return elements
}

// accessOf says what steps put at a path: the kind of the last at the path or above it, 0 for
// nothing.
func accessOf(steps []inner.Step, at string) (kind inner.Kind) {
	for _, s := range steps {
		if s.Kind != inner.Freeze && s.Kind != inner.Dir && safefs.IsBelow(at, string(s.Path)) {
			kind = s.Kind
		}
	}
	return kind
}

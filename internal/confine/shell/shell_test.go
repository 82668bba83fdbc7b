package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestMain(m *testing.M) {
	// The parent of the tests may ignore the signal, and a shell would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT)
	goleak.VerifyTestMain(m)
}

// patience limits every wait. Only a broken test waits that long.
const patience = 30 * time.Second

// eachShell runs a test with every supported shell.
func eachShell(t *testing.T, test func(t *testing.T, path string)) {
	testenv.Command(t, "dash", "bash", "busybox")
	dir := t.TempDir()
	programs := map[string]string{"dash": "dash", "bash": "bash", "ash": "busybox", "sh": "bash"}
	if _, err := exec.LookPath("zsh"); err == nil {
		programs["zsh"] = "zsh"
	}
	for name, program := range programs {
		target, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { test(t, path) })
	}
}

func TestCommands(t *testing.T) {
	every := strings.Repeat("\\000\\001\\012\\377", 1)
	tests := []struct {
		name     string
		commands []string // what the last one does is checked
		stdout   string
		stderr   string // a pattern
		status   int
	}{
		{name: "a status", commands: []string{"(exit 42)"}, status: 42},
		{name: "no final newline", commands: []string{"printf abc; printf def >&2"}, stdout: "abc", stderr: "^def$"},
		{name: "nothing is trimmed", commands: []string{"printf '\n\n x \n\n'"}, stdout: "\n\n x \n\n"},
		{name: "any byte", commands: []string{"printf '" + every + "'"}, stdout: "\x00\x01\n\xff"},
		{name: "several lines", commands: []string{"for i in 1 2\ndo\n echo $i\ndone\n"}, stdout: "1\n2\n"},
		{name: "an empty command after a failure", commands: []string{"false", "  \n"}},
		{name: "the directory stays", commands: []string{"mkdir sub; cd sub", "basename \"$PWD\""}, stdout: "sub\n"},
		{name: "variables stay", commands: []string{"a=1; export b=2", "echo $a; sh -c 'echo $a$b'"}, stdout: "1\n2\n"},
		{name: "functions stay", commands: []string{"f() {\necho \"f $1\"; }", "f x"}, stdout: "f x\n"},
		{name: "arguments stay", commands: []string{"set -- a b", "echo $#"}, stdout: "2\n"},
		{name: "options stay", commands: []string{"set -f", "echo /*"}, stdout: "/*\n"},
		{name: "descriptors stay", commands: []string{"exec 4>file", "echo x >&4; exec 4>&-; cat file"}, stdout: "x\n"},
		{name: "a stream that a command has redirected comes back", commands: []string{"exec >file 2>&1 </dev/zero", "echo x; cat"}, stdout: "x\n"},
		{name: "a stream that a command has closed comes back", commands: []string{"exec >&- 2>&- <&-", "echo x; cat"}, stdout: "x\n"},
		{name: "a job can be waited for", commands: []string{"(exit 7) & p=$!", "wait $p"}, status: 7},
		{name: "a job is ended", commands: []string{"sleep 1000 & p=$!", "kill -KILL $p; wait $p"}, status: 137, stderr: "(?s).*"},
		{name: "a here-document", commands: []string{"x=1\ncat <<A\n$x \\\\\nA\ncat <<'A'\n$x\nA"}, stdout: "1 \\\n$x\n"},
		{name: "a here-document left open", commands: []string{"cat <<A\nx\n", "echo on"}, stdout: "on\n"},
		{name: "a quote left open", commands: []string{"echo 'x"}, stderr: "[Uu]n(terminated|expected|matched)", status: -1},
		{name: "a quote left open leaves the session", commands: []string{"echo 'x", "echo on"}, stdout: "on\n"},
		{name: "a syntax error", commands: []string{"if; then"}, stderr: "(?i)syntax|parse", status: -1},
		{name: "a syntax error leaves the session", commands: []string{"x=1", "x=2; )", "echo on"}, stdout: "on\n"},
		{name: "an unset variable leaves the session", commands: []string{"set -u; echo $nothing", "set +u; echo on"}, stdout: "on\n"},
		{name: "an error of a special built-in leaves the session", commands: []string{"readonly r=1; r=2", ". /not/there", "echo on"}, stdout: "on\n"},
		{name: "return leaves the session", commands: []string{"return 3"}, status: 3},
		{name: "a command that is not there", commands: []string{"not-there"}, stderr: "not found", status: 127},
		{name: "input is at its end", commands: []string{"cat; read x; echo $?"}, stdout: "1\n"},
		{name: "input is no channel", commands: []string{"sh -c 'cat; echo end'", "echo on"}, stdout: "on\n"},
		{name: "a trap of SIGINT lasts for its command", commands: []string{"trap 'echo int' INT", "trap | grep -c INT"}, stdout: "0\n", status: 1},
		{name: "what an alias says of our words", commands: []string{"alias command=false echo=false .=false", "printf on"}, stdout: "on"},
		{name: "a prompt", commands: []string{"PS1='$ ' PS2='> '", "echo x\necho y"}, stdout: "x\ny\n"},
		{name: "tracing", commands: []string{"set -x; echo x"}, stdout: "x\n", stderr: "^\\++ ?(\\S+ )?echo x\n$"},
		{name: "no message about jobs", commands: []string{"sleep 0 & wait; :", "(exit 0) & sleep 0.1"}, stderr: "^$"},
		{name: "what looks like the protocol", commands: []string{`echo "$(printf '%032d' 0) 7"; echo 'command echo "x 0"'; (exit 5)`}, stdout: strings.Repeat("0", 32) + " 7\ncommand echo \"x 0\"\n", status: 5},
	}
	eachShell(t, func(t *testing.T, path string) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				s := open(t, path)
				for _, c := range tt.commands[:len(tt.commands)-1] {
					s.start(c).answer() // it may leave a job
				}
				stdout, stderr, status := s.run(tt.commands[len(tt.commands)-1])
				pattern := tt.stderr
				if pattern == "" {
					pattern = "^$"
				}
				if ok, err := regexp.MatchString(pattern, stderr); stdout != tt.stdout || !ok || err != nil {
					t.Errorf("stdout %q, want %q; stderr %q, want %s", stdout, tt.stdout, stderr, pattern)
				}
				if status != tt.status && (tt.status != -1 || status == 0) {
					t.Errorf("status %d, want %d", status, tt.status)
				}
			})
		}
	})
}

// A command of any size is read, and an output of any size comes whole.
func TestLarge(t *testing.T) {
	eachShell(t, func(t *testing.T, path string) {
		s := open(t, path)
		word := strings.Repeat("x", 1000)
		text := strings.Repeat("a=${a}"+word+"\n", 300)
		if _, stderr, status := s.run(text + "\n: last"); status != 0 || stderr != "" {
			t.Fatalf("%d, %q", status, stderr)
		}
		if stdout, _, _ := s.run(`printf %s "$a"`); stdout != strings.Repeat(word, 300) {
			t.Errorf("%d bytes came", len(stdout))
		}
	})
}

// A background job writes to the pipes of the command that started it.
func TestJobsKeepTheirPipes(t *testing.T) {
	eachShell(t, func(t *testing.T, path string) {
		s := open(t, path)
		go1, tell1 := s.pipe()
		job := s.start(fmt.Sprintf("(read x </proc/%d/fd/%d; echo late; echo late >&2) & echo first", os.Getpid(), go1.Fd()))
		job.answer()
		if stdout, stderr, _ := s.run("echo second"); stdout != "second\n" || stderr != "" {
			t.Errorf("%q, %q", stdout, stderr)
		}
		later := s.start("wait; echo third")
		if _, err := tell1.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
		later.answer()
		if stdout, stderr := job.output(); stdout != "first\nlate\n" || stderr != "late\n" {
			t.Errorf("the job's: %q, %q", stdout, stderr)
		}
		if stdout, stderr := later.output(); stdout != "third\n" || stderr != "" {
			t.Errorf("the later command's: %q, %q", stdout, stderr)
		}
	})
}

// A job may end while the shell waits for a command.
func TestJobsEndBetweenCommands(t *testing.T) {
	eachShell(t, func(t *testing.T, path string) {
		s := open(t, path)
		for range 10 {
			// It holds the pipe, whose end tells of its own.
			if stdout, _, _ := s.run("sleep 0.05 &"); stdout != "" {
				t.Errorf("got %q", stdout)
			}
		}
		if stdout, _, _ := s.run("echo on"); stdout != "on\n" {
			t.Errorf("got %q", stdout)
		}
	})
}

// Programs that a command runs have none of the shell's own descriptors.
func TestNoDescriptorsGoOn(t *testing.T) {
	eachShell(t, func(t *testing.T, path string) {
		s := open(t, path)
		want, err := exec.Command("ls", "/proc/self/fd").Output()
		if err != nil {
			t.Fatal(err)
		}
		ls, err := exec.LookPath("ls") // busybox runs its own without execve
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"%s", "(%s)", "exec %s & wait $!", "%s | cat", "x=$(%s); echo \"$x\""} {
			got, stderr, _ := s.run(fmt.Sprintf(command, ls+" /proc/self/fd"))
			if got != string(want) {
				t.Errorf("%s: got %q, %q, want %q", command, got, stderr, want)
			}
		}
	})
}

func TestTheShellEnds(t *testing.T) {
	tests := []struct {
		command string
		code    int
		signal  syscall.Signal
	}{
		{"exit 3", 3, 0},
		{"set -e; false; echo no", 1, 0},
		{"kill $$; echo no", 143, 0},
		{"kill -KILL $$", -1, syscall.SIGKILL},
		{"exec sh -c 'exit 4'", 4, 0},
	}
	eachShell(t, func(t *testing.T, path string) {
		for _, tt := range tests {
			t.Run(tt.command, func(t *testing.T) {
				s := open(t, path)
				s.run("echo before")
				x := s.start(tt.command)
				if _, err := s.Answer(s.context(), x.token); !errors.Is(err, ErrClosed) {
					t.Fatal(err)
				}
				<-s.ended
				status := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
				if status.ExitStatus() != tt.code || status.Signaled() != (tt.signal != 0) {
					t.Errorf("got %v", s.cmd.ProcessState)
				}
				if stdout, _ := x.output(); stdout != "" {
					t.Errorf("output: %q", stdout)
				}
			})
		}
	})
}

// Garbage on the channel is not an answer. Too much of it is an error.
func TestNoise(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	nobody, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	c := NewConn(in, r)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	token := Token("0123456789abcdef0123456789abcdef")
	for _, noise := range []string{"", "\n\n", "$ ", "0 0\n", "fedcba9876543210fedcba9876543210 1\n$ ", string(token) + "\n", string(token) + " x\n", string(token) + " -1\n", "\xff\x00"} {
		if _, err := w.WriteString(noise + string(token) + " 7\n"); err != nil {
			t.Fatal(err)
		}
		if status, err := c.Answer(ctx, token); status != 7 || err != nil {
			t.Errorf("%q: %d, %v", noise, status, err)
		}
	}
	go func() {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 2*maxNoise)) // cut short by the end of the test
	}()
	if _, err := c.Answer(ctx, token); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("got %v", err)
	}
}

package attack_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

const (
	pinners      = 6   // processes, because each may open so many files only
	pinnedByEach = 100 // all together more than the supervisor has descriptors
	supervisorFD = 256
)

// A source file that is open when it is removed must stay readable, so the supervisor keeps
// it open. A program that does this with more files than the supervisor may open gets no
// wrong content and does not block the supervisor.
func TestPinnedDescriptors(t *testing.T) {
	files := map[string]string{}
	for i := range pinners {
		for n := range pinnedByEach {
			files[pinnedName(i, n)] = pinnedName(i, n)
		}
	}
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, files, who...)
		untouched := s.Untouched()
		s.Binary = limited(t, s.Binary)
		d := s.Talk(pinFiles, nil, "--preset", "full-access")
		if got := d.Hear(); got != "pinned" {
			t.Errorf("the program said %q", got)
		}
		// The supervisor runs commands, opens files and tells of itself.
		wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo new > new && cat new"), 0)
		doc := inspect(t, s, s.Name)
		held, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", doc.Running.PID))
		if err != nil || len(held) >= supervisorFD {
			t.Errorf("the supervisor has %d descriptors, %v", len(held), err)
		}
		if r := d.End(); r.Code != 0 {
			t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
		}
		wantCode(t, s.Agentfense("stop", s.Name), 0)
		untouched()
	})
}

// limited returns a program that runs another with few descriptors.
func limited(t *testing.T, program string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(program), "limited")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n", supervisorFD, program)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func pinnedName(i, n int) string { return fmt.Sprintf("f%d-%d", i, n) }

// pinFiles has processes remove files that they have open, and read them when
// its input ends. With an argument it is one of these.
var pinFiles = program("pin files", func(in *inside, args []string) {
	if len(args) > 0 {
		pinSome(in, args[0])
		return
	}
	var children []*exec.Cmd
	for i := range pinners {
		child := exec.Command("/opt/program", strconv.Itoa(i))
		input, err := child.StdinPipe()
		in.works("pipe", err)
		output, err := child.StdoutPipe()
		in.works("pipe", err)
		child.Stderr = os.Stderr
		in.works("start", child.Start())
		line, err := bufio.NewReader(output).ReadString('\n')
		in.works("hear", err)
		in.is("a child said", strings.TrimSpace(line), "pinned")
		defer func() {
			input.Close()
			in.works("child", child.Wait())
		}()
		children = append(children, child)
	}
	in.is("children", len(children), pinners)
	fmt.Println("pinned")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n') // its end
	in.is("input ended", err != nil, true)
})

// pinSome is a process of pinFiles.
func pinSome(in *inside, number string) {
	i, err := strconv.Atoi(number)
	in.works("number", err)
	fds := make([]int, pinnedByEach)
	for n := range fds {
		fds[n], err = unix.Open(pinnedName(i, n), unix.O_RDONLY, 0)
		in.works("open", err)
		in.errno("unlink "+pinnedName(i, n), unix.Unlink(pinnedName(i, n)), 0)
	}
	fmt.Println("pinned")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	for n, fd := range fds {
		content := make([]byte, 64)
		size, err := unix.Pread(fd, content, 0)
		in.works("read", err)
		in.is("content", string(content[:max(size, 0)]), pinnedName(i, n))
	}
}

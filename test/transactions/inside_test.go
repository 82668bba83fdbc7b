package transactions_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/agentfense/agentfense/test/harness"
)

// operation is a system call of a program inside, or the few that write a file. Bytes are those of
// the names.
type operation struct {
	Do   string // "nothing", "write", "create", "mkdir", "symlink", "chmod", "unlink", "rmdir", "rename" or "link"
	Path []byte
	To   []byte `json:",omitempty"`
	Text []byte `json:",omitempty"`
	Mode uint32 `json:",omitempty"`
}

// String is for a message.
func (o operation) String() string {
	return fmt.Sprintf("%s %q %q %o", o.Do, o.Path, o.To, o.Mode)
}

// programName is the name of the program that does operations, and programPath its path inside.
const (
	programName = "operations"
	programPath = "/opt/program"
)

// doOperations is that program: it reads operations, one a line, and prints the errno of each. Its
// argument is the directory.
func doOperations(args []string) int {
	syscall.Umask(0)
	if err := os.Chdir(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for in := json.NewDecoder(os.Stdin); ; {
		var o operation
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return 0
		} else if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		var errno syscall.Errno
		if err := o.do(); err != nil && !errors.As(err, &errno) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(int(errno))
	}
}

func (o operation) do() error {
	at, to, mode := string(o.Path), string(o.To), os.FileMode(o.Mode)
	switch o.Do {
	case "nothing":
		return nil
	case "write":
		return o.write(os.O_RDWR)
	case "create":
		return o.write(os.O_RDWR | os.O_CREATE | os.O_EXCL)
	case "mkdir":
		return os.Mkdir(at, mode)
	case "symlink":
		return os.Symlink(string(o.Text), at)
	case "chmod":
		return os.Chmod(at, mode)
	case "unlink":
		return syscall.Unlink(at)
	case "rmdir":
		return syscall.Rmdir(at)
	case "rename":
		return syscall.Rename(at, to)
	case "link":
		return os.Link(at, to)
	}
	return fmt.Errorf("unknown operation %q", o.Do)
}

func (o operation) write(flags int) error {
	f, err := os.OpenFile(string(o.Path), flags, os.FileMode(o.Mode))
	if err != nil {
		return err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.Write(o.Text)
	}
	return errors.Join(err, f.Close())
}

// copyProgram copies this program to a place that a sandbox can see.
func copyProgram(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "program")
	return at, os.WriteFile(at, content, 0o755)
}

// agentfense is a command of the program with the world's home.
func (w *world) agentfense(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir = filepath.Dir(w.dir)
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+w.home.Dir())
	return cmd
}

// program is the command line that does operations in a sandbox.
func (w *world) program(b *box) *exec.Cmd {
	return w.agentfense("exec", b.name, "--", "env", harness.ProgramVariable+"="+programName, programPath, w.inPath)
}

// through does operations in a sandbox, and returns their errnos.
func (w *world) through(b *box, list []operation) ([]syscall.Errno, error) {
	var in bytes.Buffer
	for _, o := range list {
		if err := json.NewEncoder(&in).Encode(o); err != nil {
			return nil, err
		}
	}
	cmd := w.program(b)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("agentfense exec %s: %w\n%s", b.name, err, &stderr)
	}
	return parseErrnos(out)
}

func parseErrnos(out []byte) (list []syscall.Errno, err error) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var n int
		if _, err := fmt.Sscan(lines.Text(), &n); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		list = append(list, syscall.Errno(n))
	}
	return list, nil
}

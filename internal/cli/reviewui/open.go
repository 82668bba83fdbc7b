package reviewui

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// tempDir is a private directory with copies for an editor, "" if there is none.
type tempDir struct {
	path  string
	texts map[string]string // of the copies, by file
}

func (t *tempDir) remove() {
	if t.path != "" {
		_ = os.RemoveAll(t.path) // it is ours alone
		*t = tempDir{}
	}
}

// write writes copies that an editor does not write to unless it is forced to.
func (t *tempDir) write(texts map[string]string) error {
	t.texts = texts
	for file, text := range texts {
		if err := os.WriteFile(file, []byte(text), 0o400); err != nil {
			return err
		}
	}
	return nil
}

// isEdited reports whether a copy has another text by now.
func (t *tempDir) isEdited() bool {
	for file, text := range t.texts {
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			return true
		}
	}
	return false
}

// written are the copies that a program is to be shown.
type written struct {
	cmd  *exec.Cmd
	tool string
	err  error
}

// edited says that the program has ended.
type edited struct {
	tool string
	err  error
}

// edit opens the file under the cursor in a program of the person.
func (m *model) edit() tea.Cmd {
	f := m.current()
	if f == nil {
		m.status = "choose a file"
		return nil
	}
	tool, both := m.o.tool()
	if tool == "" {
		m.status = "set VISUAL, EDITOR or DIFFTOOL to a program"
		return nil
	}
	path := f.Path
	return m.source.do(func() tea.Msg {
		cmd, err := m.source.program(path, tool, both)
		return written{cmd, tool, err}
	})
}

// takeEdited says what the program has left.
func (m *model) takeEdited(msg edited) {
	err := msg.err
	if notFound, is := errors.AsType[*exec.Error](err); is {
		err = notFound.Err
	} else if notStarted, is := errors.AsType[*fs.PathError](err); is {
		err = notStarted.Err
	}
	switch {
	case err != nil:
		m.status = fmt.Sprintf("%s: %v", printable(msg.tool), err)
	case m.source.temp.isEdited():
		m.status = "what you wrote is not kept: the editor had a copy"
	}
	m.source.temp.remove()
}

// tool returns the program that the person has chosen, "" for none, and whether it shows both sides
// of a change. $VISUAL goes before $EDITOR, as in git.
func (o *Options) tool() (command string, both bool) {
	for _, name := range []string{"DIFFTOOL", "VISUAL", "EDITOR"} {
		if command = strings.TrimSpace(o.Getenv(name)); command != "" {
			return command, name == "DIFFTOOL"
		}
	}
	return "", false
}

// program writes copies of the sides of a change, and returns the command that shows them.
func (s *source) program(path vpath.Path, tool string, both bool) (*exec.Cmd, error) {
	oldText, newText, err := s.sides(path)
	if err != nil {
		return nil, err
	}
	s.temp.remove()
	if s.temp.path, err = os.MkdirTemp("", "agentfense-review-"); err != nil { // with mode 0700
		return nil, err
	}
	// The sandbox chose the name. An editor must not take it for a file of its own, or for a flag.
	oldFile, newFile := s.temp.path+"/old"+extension(path), s.temp.path+"/new"+extension(path)
	if err := s.temp.write(map[string]string{oldFile: oldText, newFile: newText}); err != nil {
		return nil, err
	}
	words := strings.Fields(tool)
	args := safeFlags(strings.Trim(words[0], `"'`))
	if both {
		args = append(args, oldFile)
	}
	if !plainCommand.MatchString(tool) { // as git does
		words = []string{"/bin/sh", "-c", tool + ` "$@"`, tool}
	}
	words = slices.Concat(words, args, []string{newFile})
	cmd := exec.CommandContext(s.ctx, words[0], words[1:]...)
	cmd.Dir = s.temp.path
	// The terminal itself: of a terminal that is read for it, Bubble Tea would wait for the end.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.o.In, s.o.Out, s.o.Out
	return cmd, nil
}

// plainCommand has no character that means something to a shell.
var plainCommand = regexp.MustCompile(`^[\w./:@%+, -]+$`)

// safeFlags keep an editor from obeying the text that it shows (modelines, local variables). It is
// known by its name, or by that of the file to which the name leads, such as vi to vim.basic.
func safeFlags(program string) []string {
	if flags, is := flagsOf[filepath.Base(program)]; is {
		return slices.Clone(flags)
	}
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil
	}
	name := filepath.Base(path)
	if end := strings.IndexAny(name, ".-"); end > 0 {
		name = name[:end]
	}
	return slices.Clone(flagsOf[name])
}

var flagsOf = map[string][]string{
	"vim": vimFlags, "nvim": vimFlags, "gvim": vimFlags, "vimdiff": vimFlags, "view": vimFlags,
	"emacs": {"--eval", "(setq enable-local-variables nil enable-local-eval nil enable-dir-local-variables nil)"},
}

var vimFlags = []string{"--cmd", "set nomodeline secure noexrc"}

var plainExtension = regexp.MustCompile(`^\.[a-z0-9]{1,8}$`)

func extension(path vpath.Path) string {
	if ext := filepath.Ext(path.Base()); plainExtension.MatchString(ext) {
		return ext
	}
	return ".txt"
}

// sides reads the content of a change. The earlier one is what the diff takes back.
func (s *source) sides(path vpath.Path) (oldText, newText string, err error) {
	parts, st, err := s.read(path)
	if err != nil {
		return "", "", err
	}
	p := &parts[0]
	if len(parts) > 1 || !p.content.IsShown() || !isRegular(st.old) || !isRegular(st.new) {
		return "", "", errdefs.New(errdefs.Unsupported, "%s: only a text file can be opened", path)
	}
	if st.new.isThere {
		if newText, err = s.contentNow(path); err != nil {
			return "", "", err
		}
	}
	oldText, ok := before(newText, p.content.Hunks)
	if !ok {
		return "", "", errdefs.New(errdefs.Precondition, "%s: it changed meanwhile; look again", path)
	}
	return oldText, newText, nil
}

func isRegular(s side) bool { return !s.isThere || s.mode&record.TypeBits == unix.S_IFREG }

// contentNow reads what the sandbox sees at a path.
func (s *source) contentNow(path vpath.Path) (string, error) {
	v, err := s.o.Backend.View(s.ctx, s.o.Name, s.o.Mount, s.o.Again)
	if err != nil {
		return "", err
	}
	defer v.Close()
	var b bounded
	if err := v.Copy(context.WithoutCancel(s.ctx), &b, path); err != nil {
		return "", err
	}
	return b.String(), nil
}

// bounded takes a text as large as one that is compared.
type bounded struct{ strings.Builder }

// Write fails behind the limit.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > textdiff.SizeLimit {
		return 0, fmt.Errorf("larger than %d bytes", textdiff.SizeLimit)
	}
	return b.Builder.Write(p)
}

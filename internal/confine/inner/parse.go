package inner

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Outer is what Parse must know of the process that called bubblewrap. Its functions see the
// sandbox.
type Outer struct {
	UID, GID int
	Dir      string                       // working directory
	Env      []string                     // KEY=VALUE
	Read     func(fd int) (string, error) // everything that is in a descriptor
	Link     func(path string) string     // target of a symbolic link, "" for anything else
}

// Special results of Parse.
var (
	ErrHelp    = errors.New("--help")
	ErrVersion = errors.New("--version")
)

// maxArgs is how many arguments bubblewrap takes, with those of --args.
const maxArgs = 9000

// Parse reads the arguments of bubblewrap, without the program's name. Errors: ErrHelp, ErrVersion;
// others are for people, in one line.
func Parse(args []string, outer Outer) (*Request, error) {
	p := &parser{outer: outer, table: table(), env: slices.Clone(outer.Env), left: maxArgs}
	rest, err := p.options(args)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, errors.New("no command")
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	p.request.Command, p.request.Env = texts(rest), texts(p.env)
	p.request.Dirs = p.dirs()
	if err := p.request.Check(); err != nil {
		return nil, err
	}
	return &p.request, nil
}

func texts(list []string) []Text {
	all := make([]Text, len(list))
	for i, s := range list {
		all[i] = Text(s)
	}
	return all
}

type parser struct {
	outer   Outer
	table   map[string]option
	request Request
	env     []string
	left    int // how many arguments may follow

	chdir             string
	userns, uts, all  bool
	ids               bool // --uid or --gid was given
	shareNet          bool
	hasPerms, hasSize bool
	perms             uint32
	size              int64
}

// option is one of bubblewrap's options.
type option struct {
	args  int
	apply func(p *parser, name string, args []string) error
	help  string // of its arguments
}

// options reads options up to the command, and returns that.
func (p *parser) options(args []string) ([]string, error) {
	if p.left -= len(args); p.left < 0 {
		return nil, fmt.Errorf("more than %d arguments", maxArgs)
	}
	for len(args) > 0 {
		name := args[0]
		if name == "--" {
			return args[1:], nil
		}
		if !strings.HasPrefix(name, "--") {
			return args, nil
		}
		o, known := p.table[name]
		switch {
		case !known:
			return nil, refusal(name, cmp.Or(refusals[name], "this option is not possible inside a sandbox"))
		case len(args)-1 < o.args:
			return nil, fmt.Errorf("%s takes %d arguments: %s", name, o.args, o.help)
		}
		if err := o.apply(p, name, args[1:1+o.args]); err != nil {
			return nil, err
		}
		if err := p.checkModifiers(name); err != nil {
			return nil, err
		}
		args = args[1+o.args:]
	}
	return nil, nil
}

// refusal says why an option is not done.
func refusal(name, why string) error {
	return fmt.Errorf("%s: %s; see \"An agent's own sandbox\" in agentfense's docs/agents.md", name, why)
}

// checkModifiers refuses --perms and --size before an option that does not use them.
func (p *parser) checkModifiers(name string) error {
	if name == "--perms" || name == "--size" {
		return nil
	}
	if p.hasPerms || p.hasSize {
		return refusal(name, "--perms or --size before it has no meaning")
	}
	return nil
}

// mode takes the value of --perms.
func (p *parser) mode(otherwise uint32) uint32 {
	if !p.hasPerms {
		return otherwise
	}
	p.hasPerms = false
	return p.perms
}

func (p *parser) add(s Step) { p.request.Steps = append(p.request.Steps, s) }

// place is a path as bubblewrap takes it: beneath the new root, whatever it begins with.
func place(name string) Text { return Text(path.Clean("/" + name)) }

// source is a path of the sandbox.
func (p *parser) source(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(p.outer.Dir, name)
}

func (p *parser) dirs() []Text {
	if p.chdir != "" {
		return []Text{place(p.chdir)}
	}
	var dirs []Text
	for _, d := range []string{p.outer.Dir, p.variable("HOME"), "/"} {
		if isClean(d) {
			dirs = append(dirs, Text(d))
		}
	}
	return dirs
}

func (p *parser) variable(name string) string {
	for _, v := range p.env {
		if value, is := strings.CutPrefix(v, name+"="); is {
			return value
		}
	}
	return ""
}

// finish checks what options mean together.
func (p *parser) finish() error {
	switch {
	case p.hasPerms || p.hasSize:
		return errors.New("--perms or --size without an option after it")
	case p.shareNet && !p.all:
		return errors.New("--share-net goes with --unshare-all only")
	case p.ids && !p.userns:
		return errors.New("--uid and --gid go with --unshare-user only")
	case p.request.Hostname != "" && !p.uts:
		return errors.New("--hostname goes with --unshare-uts only")
	case p.all && !p.shareNet:
		p.request.NoNet = true
	}
	return nil
}

func (p *parser) set(name, value string) error {
	if name == "" || strings.Contains(name, "=") {
		return fmt.Errorf("--setenv %q: not a name of a variable", name)
	}
	p.unset(name)
	p.env = append(p.env, name+"="+value)
	return nil
}

func (p *parser) unset(name string) {
	p.env = slices.DeleteFunc(p.env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

// read returns what a descriptor that is named in the arguments holds.
func (p *parser) read(name, text string) (string, error) {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 {
		return "", fmt.Errorf("%s %q: not a descriptor", name, text)
	}
	content, err := p.outer.Read(fd)
	if err != nil {
		return "", fmt.Errorf("%s %d: %w", name, fd, err)
	}
	return content, nil
}

// bind is what all binds do: source and place must be one path.
func bind(kind Kind, optional bool) func(*parser, string, []string) error {
	return func(p *parser, name string, args []string) error {
		at := place(args[1])
		from := p.source(args[0])
		switch {
		case Text(from) == at:
			p.add(Step{Kind: kind, Path: at, Optional: optional})
		case kind == ReadOnly && from == "/dev/null":
			p.add(Step{Kind: File, Path: at, Mode: 0o444})
		default:
			return refusal(name+" "+args[0]+" "+args[1], "a place can only be bound to itself, or /dev/null read-only over a file")
		}
		return nil
	}
}

func data(own bool, mode uint32) func(*parser, string, []string) error {
	return func(p *parser, name string, args []string) error {
		content, err := p.read(name, args[0])
		if err != nil {
			return err
		}
		p.add(Step{Kind: File, Path: place(args[1]), Content: Text(content), Own: own, Mode: p.mode(mode)})
		return nil
	}
}

// only is an option that names one place, which the inner sandbox has anyway.
func only(places ...string) func(*parser, string, []string) error {
	return func(_ *parser, name string, args []string) error {
		if at := place(args[0]); !slices.Contains(places, string(at)) {
			return refusal(name+" "+args[0], "only possible at "+strings.Join(places, " and "))
		}
		return nil
	}
}

func identity(own func(*parser) int) func(*parser, string, []string) error {
	return func(p *parser, name string, args []string) error {
		p.ids = true
		if id := own(p); args[0] != strconv.Itoa(id) {
			return refusal(name+" "+args[0], fmt.Sprintf("only the sandbox's own id is possible, %d", id))
		}
		return nil
	}
}

// link permits a link that is there, and is a directory of the system's.
func link(p *parser, name string, args []string) error {
	at := string(place(args[1]))
	if p.outer.Link(at) != args[0] {
		return refusal(name+" "+args[0]+" "+args[1], "only a link that is there already is possible")
	}
	return nil
}

func parsePerms(p *parser, name string, args []string) error {
	mode, err := strconv.ParseUint(args[0], 8, 32)
	if err != nil || mode > 0o7777 {
		return fmt.Errorf("%s %q: not an octal mode", name, args[0])
	}
	p.perms, p.hasPerms = uint32(mode), true
	return nil
}

func parseSize(p *parser, name string, args []string) error {
	size, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil || size <= 0 {
		return fmt.Errorf("%s %q: not a number of bytes", name, args[0])
	}
	p.size, p.hasSize = size, true
	return nil
}

func tmpfs(p *parser, _ string, args []string) error {
	s := Step{Kind: Empty, Path: place(args[0]), Mode: p.mode(0o755)}
	if p.hasSize {
		s.Size, p.hasSize = p.size, false
	}
	p.add(s)
	return nil
}

func unshareAll(p *parser, _ string, _ []string) error {
	p.all, p.userns, p.uts = true, true, true
	return nil
}

// granted is an option that every inner sandbox fulfils.
func granted(*parser, string, []string) error { return nil }

// Help is the answer to --help.
func Help() string {
	var b strings.Builder
	b.WriteString("usage: bwrap [OPTIONS...] [--] COMMAND [ARGS...]\n\n" +
		"This is agentfense's stand-in for bubblewrap inside a sandbox. The command runs in a\n" +
		"sandbox that sees at most what this one sees.\n\n")
	t := table()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&b, "    %s\n", strings.TrimSpace(name+" "+t[name].help))
	}
	return b.String()
}

// Version is the answer to --version.
const Version = "bubblewrap 0.8.0 (agentfense)\n"

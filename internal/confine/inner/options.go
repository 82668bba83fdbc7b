package inner

import "strings"

// table are the options of bubblewrap 0.8 that can be honoured.
func table() map[string]option {
	t := map[string]option{
		"--help":    {apply: func(*parser, string, []string) error { return ErrHelp }},
		"--version": {apply: func(*parser, string, []string) error { return ErrVersion }},
		"--args":    {1, argsFrom, "FD"},

		"--bind":         {2, bind(Writable, false), "PATH PATH"},
		"--bind-try":     {2, bind(Writable, true), "PATH PATH"},
		"--dev-bind":     {2, bind(Writable, false), "PATH PATH"},
		"--dev-bind-try": {2, bind(Writable, true), "PATH PATH"},
		"--ro-bind":      {2, bind(ReadOnly, false), "PATH PATH, or /dev/null PATH"},
		"--ro-bind-try":  {2, bind(ReadOnly, true), "PATH PATH, or /dev/null PATH"},
		"--tmpfs":        {1, tmpfs, "PATH"},
		"--file":         {2, data(true, 0o666), "FD PATH"},
		"--bind-data":    {2, data(true, 0o600), "FD PATH"},
		"--ro-bind-data": {2, data(false, 0o600), "FD PATH"},
		"--dir": {1, func(p *parser, _ string, args []string) error {
			p.add(Step{Kind: Dir, Path: place(args[0]), Mode: p.mode(0o755)})
			return nil
		}, "PATH"},
		"--remount-ro": {1, func(p *parser, _ string, args []string) error {
			p.add(Step{Kind: Freeze, Path: place(args[0])})
			return nil
		}, "PATH"},
		"--symlink": {2, link, "TARGET PATH"},
		"--dev":     {1, only("/dev"), "/dev"},
		"--proc":    {1, only("/proc"), "/proc"},
		"--perms":   {1, parsePerms, "OCTAL"},
		"--size":    {1, parseSize, "BYTES"},

		"--chdir":    {1, func(p *parser, _ string, args []string) error { p.chdir = args[0]; return nil }, "PATH"},
		"--setenv":   {2, func(p *parser, _ string, args []string) error { return p.set(args[0], args[1]) }, "NAME VALUE"},
		"--unsetenv": {1, func(p *parser, _ string, args []string) error { p.unset(args[0]); return nil }, "NAME"},
		"--clearenv": {0, clearEnv, ""},

		"--unshare-all":      {0, unshareAll, ""},
		"--unshare-user":     {0, unshareUser, ""},
		"--unshare-user-try": {0, unshareUser, ""},
		"--unshare-uts":      {0, func(p *parser, _ string, _ []string) error { p.uts = true; return nil }, ""},
		"--unshare-net":      {0, func(p *parser, _ string, _ []string) error { p.request.NoNet = true; return nil }, ""},
		"--share-net":        {0, func(p *parser, _ string, _ []string) error { p.shareNet = true; return nil }, ""},
		"--hostname":         {1, hostname, "NAME"},
		"--uid":              {1, identity(func(p *parser) int { return p.outer.UID }), "UID"},
		"--gid":              {1, identity(func(p *parser) int { return p.outer.GID }), "GID"},
		"--cap-drop":         {1, granted, "CAP"},
		"--sync-fd":          {1, granted, "FD"},
		"--die-with-parent":  {0, func(p *parser, _ string, _ []string) error { p.request.DieWithParent = true; return nil }, ""},
	}
	for _, name := range []string{
		"--unshare-ipc", "--unshare-pid", "--unshare-cgroup", "--unshare-cgroup-try", "--disable-userns",
		"--assert-userns-disabled", "--new-session", "--as-pid-1",
	} {
		t[name] = option{apply: granted}
	}
	return t
}

// refusals are the options of bubblewrap of which it is known why they cannot be honoured.
var refusals = map[string]string{
	"--seccomp":        noFilter,
	"--add-seccomp-fd": noFilter,
	"--cap-add":        "no capability can be given",
	"--userns":         noNamespace,
	"--userns2":        noNamespace,
	"--pidns":          noNamespace,
	"--bind-fd":        "a place can only be bound to itself, by --bind",
	"--ro-bind-fd":     "a place can only be bound to itself, by --ro-bind",
	"--info-fd":        "the processes of an inner sandbox have no numbers here",
	"--json-status-fd": "the processes of an inner sandbox have no numbers here",
}

const (
	noFilter    = "a filter of system calls cannot be added; apply it in the command itself"
	noNamespace = "a namespace from outside cannot be used"
)

// argsFrom reads more options from a descriptor, each followed by a NUL.
func argsFrom(p *parser, name string, args []string) error {
	content, err := p.read(name, args[0])
	if err != nil {
		return err
	}
	rest, err := p.options(strings.Split(strings.TrimSuffix(content, "\x00"), "\x00"))
	if err == nil && len(rest) > 0 {
		return refusal(name, "it must hold options only, and no command")
	}
	return err
}

func clearEnv(p *parser, _ string, _ []string) error {
	pwd := p.variable("PWD") // which bubblewrap keeps
	p.env = nil
	if pwd != "" {
		p.env = []string{"PWD=" + pwd}
	}
	return nil
}

func unshareUser(p *parser, _ string, _ []string) error {
	p.userns = true
	return nil
}

func hostname(p *parser, _ string, args []string) error {
	p.request.Hostname = Text(args[0])
	return nil
}

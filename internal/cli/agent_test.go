package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// A home directory is not shown as a part of a program, also where a link leads to it.
func TestAHomeThatIsALinkIsNoPartOfAProgram(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, link := filepath.Join(dir, "home"), filepath.Join(dir, "link")
	program := filepath.Join(home, "bin", "agent")
	for _, err := range []error{
		os.MkdirAll(filepath.Dir(program), 0o700), os.Symlink(home, link),
		os.WriteFile(program, nil, 0o700), os.WriteFile(filepath.Join(home, "pyvenv.cfg"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	in := &inside{home: link, record: record.Record{Workspace: "/project"}, getenv: func(string) string { return "" }}
	if parts := in.partsOf(program); len(parts) != 1 || parts[0] != program {
		t.Errorf("parts of %s: %q", program, parts)
	}
	for _, p := range []string{link, home, dir} {
		if err := in.checkToolchain([]string{p}, false); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// The path of a home directory is never read as options of a mount.
func TestAHomeDirectoryIsNoOption(t *testing.T) {
	home := filepath.Join(t.TempDir(), "a,dst=", "etc")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	var o runOptions
	p := &profile.Profile{Name: "x", Home: []policy.Rule{{Pattern: "/x", Permission: policy.Read}}}
	if err := o.showHome(&inside{home: home, record: record.Record{Workspace: "/project"}}, p); !errdefs.Is(err, errdefs.Invalid) || len(o.Mounts) > 0 {
		t.Errorf("%v, %q", err, o.Mounts)
	}
}

// What agentfense says to an agent replaces no instructions of the user: in the arguments, in a
// file of the home directory, also behind a link, or in one of the project.
func TestAHintReplacesNoInstructions(t *testing.T) {
	p, err := profile.Load("", "codex")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file, content string
		link          bool
		args          []string
		hinted        bool
	}{
		"nothing":                  {hinted: true},
		"another file":             {file: "home/.codex/config.toml", content: "model = 1\n", hinted: true},
		"an argument":              {args: []string{"exec", "-c", "developer_instructions=x"}},
		"the version":              {args: []string{"--version"}},
		"a command":                {args: []string{"--debug", "mcp", "list"}},
		"a word of a prompt":       {args: []string{"exec", "mcp list"}, hinted: true},
		"the user's file":          {file: "home/.codex/config.toml", content: "developer_instructions = 1\n"},
		"the user's linked file":   {file: "home/.codex/config.toml", content: "developer_instructions = 1\n", link: true},
		"the project's file":       {file: "project/.codex/config.toml", content: "developer_instructions = 1\n"},
		"a project's file, a link": {file: "project/.codex/config.toml", content: "model = 1\n", link: true}, // it is not followed
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, sub := range []string{"home/.codex", "project/.codex"} {
				if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if test.file != "" {
				path := filepath.Join(dir, test.file)
				if test.link {
					if err := os.Symlink(filepath.Join(dir, "file"), path); err != nil {
						t.Fatal(err)
					}
					path = filepath.Join(dir, "file")
				}
				if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			in := &inside{home: filepath.Join(dir, "home")}
			in.record.Source.Path = record.HostPath(filepath.Join(dir, "project"))
			p := *p
			p.Hint.Commands = []string{"mcp"}
			o := runOptions{}
			o.agentArgs = test.args
			args := o.giveHint(&env{}, in, &p)
			if hinted := len(args) == 1 && strings.Contains(args[0], profile.HintText); hinted != test.hinted {
				t.Errorf("arguments %q, want the hint: %v", args, test.hinted)
			}
		})
	}
}

// An agent that reaches the host of its key by name has no address for it, and the host has no
// other rule.
func TestAKeyForAHostThatIsReachedByName(t *testing.T) {
	p := &profile.Profile{Name: "x", Hosts: []string{"api.example.com", "other.example.com"}, Secrets: []profile.Secret{{Name: "KEY", Host: "api.example.com", BaseURL: "KEY_URL", Intercept: true}}}
	for name, test := range map[string]struct {
		variables  map[string]string
		allow, env []string
	}{
		"a key":             {map[string]string{"KEY": "0123456789"}, []string{"other.example.com", "api.example.com:443,intercept"}, []string{"KEY_URL="}},
		"no key":            {nil, []string{"api.example.com", "other.example.com"}, nil},
		"an address, too":   {map[string]string{"KEY": "0123456789", "KEY_URL": "https://a.example.com"}, []string{"api.example.com", "other.example.com"}, []string{"KEY_URL=http://key.agentfense.internal"}},
		"a local model too": {map[string]string{"KEY": "x", "KEY_URL": "http://localhost:1"}, []string{"api.example.com", "other.example.com", "localhost:1"}, []string{"KEY_URL", "KEY"}},
	} {
		e := &env{getenv: func(v string) string { return test.variables[v] }, stderr: os.Stderr}
		var o runOptions
		if _, err := o.giveNetwork(e, newAgent(e, "claude"), p); err != nil || !slices.Equal(o.Allow, test.allow) || !slices.Equal(o.Env, test.env) {
			t.Errorf("%s: %v, hosts %q and variables %q; want %q and %q", name, err, o.Allow, o.Env, test.allow, test.env)
		}
	}
}

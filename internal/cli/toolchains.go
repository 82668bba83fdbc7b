package cli

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// toolchainPrograms are the programs that --toolchains brings inside, each with all that
// lies beside it in its toolchain: npm with node, gofmt with go.
var toolchainPrograms = []string{"go", "cargo", "rustc", "node", "python3", "python", "java", "ruby", "uv", "bun", "deno"}

// toolchainVariables tell a toolchain or its manager where it lies, as their documentation
// has them. The caller's are given to commands, if they name a directory that is shown.
var toolchainVariables = []string{
	"ASDF_DATA_DIR", "ASDF_DIR", "BUN_INSTALL", "DENO_INSTALL", "FNM_DIR", "GOENV_ROOT", "GOROOT", "JAVA_HOME", "JENV_ROOT",
	"MISE_DATA_DIR", "NODENV_ROOT", "NVM_DIR", "PYENV_ROOT", "RBENV_ROOT", "RUSTUP_HOME", "SDKMAN_DIR", "VOLTA_HOME",
}

// toolchains is what --toolchains gives a sandbox.
type toolchains struct {
	dirs      []string // to be mounted at the same places, none below another
	variables []string // NAME=VALUE
	found     []string // for people: a program and its version
	left      []string // for people: what cannot be shown, and why
}

// addToolchains adds to the mounts and to the variables env what --toolchains finds.
// Errors: Invalid where the host's programs are not what a sandbox has inside.
func (o *sandboxOptions) addToolchains(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, env []string) ([]string, error) {
	if !o.Toolchains {
		return env, nil
	}
	if err := b.Check(backend.NewSandbox{Net: record.NetNone, Toolchains: true}); err != nil {
		return nil, err
	}
	home, err := e.openHome()
	if err != nil {
		return nil, err
	}
	r, err := o.planned(ctx, cmd, b, home)
	if err != nil {
		return nil, err
	}
	if r.Runtime == record.RuntimeDocker {
		return nil, usageError{errdefs.New(errdefs.Invalid, "--toolchains: only with --runtime bwrap; with docker, the programs come from the image: choose one with --image")}
	}
	t := e.findToolchains(e.lookInside(r))
	for _, text := range t.left {
		e.say("toolchains: %s", text)
	}
	if len(t.found) == 0 {
		e.say("toolchains: nothing to show: what your PATH has of %s is inside already", strings.Join(toolchainPrograms, ", "))
		return env, nil
	}
	e.say("toolchains: %s; read-only inside: %s", vpath.Escape(strings.Join(t.found, ", ")), vpath.Escape(strings.Join(t.dirs, ", ")))
	o.Mounts = append(slices.Clone(o.Mounts), t.dirs...)
	return addVariables(slices.Clone(env), t.variables...), nil
}

// addVariables adds to a list of NAME=VALUE, or NAME, the variables whose names it does not have.
func addVariables(list []string, variables ...string) []string {
	nameOf := func(v string) string { name, _, _ := strings.Cut(v, "="); return name }
	for _, v := range variables {
		if !slices.ContainsFunc(list, func(has string) bool { return nameOf(has) == nameOf(v) }) {
			list = append(list, v)
		}
	}
	return list
}

// planned returns what is known of the record before the toolchains are: its runtime,
// workspace and the places of --mount.
func (o *sandboxOptions) planned(ctx context.Context, cmd *cobra.Command, b backend.Backend, home *record.Home) (r record.Record, err error) {
	if sb, err := b.Sandbox(ctx, o.Name); o.Name != "" && err == nil {
		r.Source, r.Workspace, r.Runtime = sb.Record.Source, sb.Record.Workspace, sb.Record.Runtime
	} else {
		if r.Source, err = o.source(home); err != nil {
			return r, err
		}
		r.Workspace, r.Runtime = string(r.Source.Path), o.Runtime
	}
	if cmd.Flags().Changed("runtime") {
		r.Runtime = o.Runtime
	}
	for _, text := range o.Mounts {
		s, err := mountspec.Parse(text)
		if err != nil {
			return r, usageError{errdefs.New(errdefs.Invalid, "--mount %q: %w", text, err)}
		}
		target, err := filepath.Abs(s.At())
		if err != nil {
			return r, errdefs.New(errdefs.Invalid, "--mount %q: %w", text, err)
		}
		r.Mounts = append(r.Mounts, record.Mount{Target: record.HostPath(target)})
	}
	return r, nil
}

// findToolchains finds what the programs of toolchainPrograms need that the caller's PATH
// has, and that is not inside. It runs none of them.
func (e *env) findToolchains(in *inside) toolchains {
	var t toolchains
	for _, name := range toolchainPrograms {
		program := e.ownProgram(name)
		if program == "" || in.shows(program) {
			continue
		}
		dirs, ofWorkspace := in.toolchainOf(program)
		variables := in.variablesOf(program)
		if home := e.rustupHome(in); home != "" && isRustup(program) {
			dirs, variables = append(dirs, home), append(variables, "RUSTUP_HOME="+home)
		}
		if err := in.checkToolchain(dirs, ofWorkspace); err != nil {
			t.left = append(t.left, vpath.Escape(name)+": "+err.Error())
			continue
		}
		t.found = append(t.found, strings.TrimSpace(name+" "+in.versionOf(program)))
		t.dirs = append(t.dirs, dirs...)
		t.variables = addVariables(t.variables, variables...)
	}
	t.dirs = outermost(t.dirs)
	for _, name := range toolchainVariables {
		value := e.getenv(name)
		if filepath.IsAbs(value) && slices.ContainsFunc(t.dirs, func(dir string) bool { return safefs.IsBelow(filepath.Clean(value), dir) }) {
			t.variables = addVariables(t.variables, name+"="+value)
		}
	}
	return t
}

// maxLinks is how many links one after the other the kernel follows (path_resolution(7)).
const maxLinks = 40

// toolchainOf returns what has to be shown for a program to run: for each path that leads to
// it by links, the directory of its version manager, the tree that it was unpacked to, or
// the program alone. Directories in which programs of all kinds lie are never shown whole.
// ofWorkspace says that one of the links is in the workspace, where others may have made it.
func (in *inside) toolchainOf(program string) (shown []string, ofWorkspace bool) {
	for range maxLinks {
		ofWorkspace = ofWorkspace || in.isOfWorkspace(program)
		if !in.isShown(program) {
			shown = append(shown, in.partOf(program))
		}
		to, err := os.Readlink(program)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(program))
			if err != nil {
				break
			}
			to = filepath.Join(dir, to)
		}
		program = filepath.Clean(to)
	}
	if real, err := filepath.EvalSymlinks(program); err == nil && !in.isShown(real) {
		shown = append(shown, in.partOf(real))
	}
	return outermost(shown), ofWorkspace
}

// realHome is the home directory without symbolic links, as far as there is one.
func (in *inside) realHome() string {
	if real, err := filepath.EvalSymlinks(in.home); err == nil {
		return real
	}
	return in.home
}

// isOfWorkspace reports whether a path, or the directory that its name is in, is in the workspace.
func (in *inside) isOfWorkspace(p string) bool {
	isBelow := func(p string) bool {
		return safefs.IsBelow(p, in.record.Workspace) || in.record.Source.Path != "" && safefs.IsBelow(p, string(in.record.Source.Path))
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(p))
	return isBelow(p) || err == nil && isBelow(dir)
}

// partOf is what toolchainOf shows for a path.
func (in *inside) partOf(program string) string {
	if dir := in.managerOf(program); dir != "" {
		return dir
	}
	if tree := filepath.Dir(filepath.Dir(program)); filepath.Base(filepath.Dir(program)) == "bin" && isToolchain(tree) {
		return tree
	}
	return program
}

// toolchainMarks are what the toolchains have beside their bin, of which one is enough.
var toolchainMarks = []string{"pkg/tool", "include/node", "lib/rustlib", "release", "conda-meta", "lib/python3*/os.py", "lib/ruby"}

// homeMarks are what the home directory of a person has.
var homeMarks = []string{".ssh", ".bashrc", ".profile", ".config", ".gnupg", ".bash_history"}

// isToolchain reports whether a directory is what a toolchain was unpacked to, and nothing
// else.
func isToolchain(dir string) bool {
	if slices.ContainsFunc(homeMarks, func(name string) bool { return has(dir, name) }) {
		return false
	}
	return slices.ContainsFunc(toolchainMarks, func(pattern string) bool {
		found, _ := fs.Glob(os.DirFS(dir), pattern) // the only error is of a pattern
		return len(found) > 0
	})
}

// checkToolchain refuses paths that cannot be mounted, or must not be. Links of the workspace
// may lead to toolchains, but not to any file that can be executed. Errors: Invalid.
func (in *inside) checkToolchain(paths []string, ofWorkspace bool) error {
	for _, p := range paths {
		info, err := os.Lstat(p) // of a link, where it leads is among the paths too
		switch {
		case ofWorkspace && (err != nil || info.Mode().IsRegular()):
			return errdefs.New(errdefs.Invalid, "%s is not shown, because a link in the workspace leads to it and it is part of no toolchain; mount it yourself", vpath.Quote(p))
		case safefs.IsBelow(in.home, p), safefs.IsBelow(in.realHome(), p):
			return errdefs.New(errdefs.Invalid, "%s is not shown, because it contains your home directory", vpath.Quote(p))
		case safefs.IsBelow(in.record.Workspace, p):
			return errdefs.New(errdefs.Invalid, "%s is not shown, because it contains the workspace", vpath.Quote(p))
		case !mountspec.IsPlain(p):
			return errdefs.New(errdefs.Invalid, "%s is not shown, because --mount cannot spell it", vpath.Quote(p))
		}
		for _, m := range in.record.Mounts {
			if safefs.IsBelow(string(m.Target), p) {
				return errdefs.New(errdefs.Invalid, "%s is not shown, because it contains the place of --mount %s; mount it yourself", vpath.Quote(p), m.Target)
			}
		}
	}
	return nil
}

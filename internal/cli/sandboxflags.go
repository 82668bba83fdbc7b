package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// sandboxOptions are the flags that say what a sandbox is: those of run and
// create.
type sandboxOptions struct {
	Name string
	Dir  string
	// Codebase is a server's, in place of Dir.
	Codebase string
	Yes      bool // a broad Dir is meant
	Preset   string
	Policy   string
	Write    []string
	Read     []string
	View     []string
	Hide     []string

	Runtime string
	Image   string
	User    string
	Net     string
	Allow   []string // --allow-net
	// Requests are --net-allow.
	Requests []string
	Secrets  []string // --secret
	Limited  []string // --secret-allow
	Publish  []string // --publish
	// NetLimits are --net-limit, SecretLimits --secret-limit.
	NetLimits    []string
	SecretLimits []string
	Mounts       []string
	// Toolchains are found and added to Mounts.
	Toolchains bool
	Scratch    []string
	Git        string
	Memory     bytesValue
	CPUs       float64
	PIDs       int64
	Disk       bytesValue
	Timeout    time.Duration
	Home       string
	Ask        askOptions
	Board      bool
	Rebase     bool

	// marks, fileNetwork and fileScratch are those of the policy file that the rules are
	// from, set by rules.
	marks       []policyfile.RiskFlag
	fileNetwork *policyfile.Network
	fileScratch []policyfile.Scratch
	// isProjects says that Policy is the file of the project, which no flag named.
	isProjects bool
	// userHosts are those that the user has allowed in the project, set by rules.
	userHosts []string

	// Of the profile of an agent: the preset in place of the default one, the flags that a known
	// sandbox gets anew, and, unless nil, what reads the policy file of a mount.
	defaultPreset string
	profileFlags  []string
	agentArgs     []string // of the caller
	login         *agentLogin
	// ignoredScratch makes directories of packages that git ignores scratch directories of a new
	// sandbox.
	ignoredScratch bool
	// cleanIfTracked gives a new sandbox a clean repository if git tracks hidden files.
	cleanIfTracked bool
	mountRules     func(file, source string) ([]policy.Rule, error)
	// namedNet makes a network of named hosts although none is named, which reports the names that
	// are asked for.
	namedNet bool
}

// policyFlags are the flags whose presence at a resume replaces the stored
// policy.
var policyFlags = []string{"preset", "policy", "write", "read", "view", "hide"}

// limitFlags are those whose presence at a resume replaces the stored setting.
var limitFlags = []string{"runtime", "image", "user", "net", "allow-net", "net-allow", "net-limit", "secret", "secret-allow", "secret-limit", "publish", "mount", "toolchains", "scratch", "memory", "cpus", "pids", "disk", "timeout", "home", "ask", "ask-timeout", "ask-hook", "board"}

func (o *sandboxOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Dir, "dir", "", "source directory (default: the current one)")
	f.BoolVarP(&o.Yes, "yes", "y", false, "do not ask before a sandbox is made of your home directory")
	f.StringVar(&o.Codebase, "codebase", "", "on a server: `ID` of the codebase that is the source (default: --dir is uploaded)")
	f.StringVar(&o.Preset, "preset", "", "start from a preset: "+strings.Join(preset.Names(), ", ")+" (default agent-safe)")
	f.StringVar(&o.Policy, "policy", "", "take the rules from a policy file instead of the preset")
	f.StringArrayVar(&o.Write, "write", nil, "make what matches `PATTERN` writable")
	f.StringArrayVar(&o.Read, "read", nil, "make what matches `PATTERN` readable")
	f.StringArrayVar(&o.View, "view", nil, "list what matches `PATTERN`, without its content")
	f.StringArrayVar(&o.Hide, "hide", nil, "hide what matches `PATTERN`; wins over every other rule")
	f.StringVar(&o.Runtime, "runtime", record.RuntimeBwrap, "what confines it: bwrap, with the host's system inside, or docker, with an image's")
	f.StringVar(&o.Image, "image", "", "docker image that is the system inside (default "+defaultImage()+")")
	f.StringVar(&o.User, "user", "", "uid and gid of commands inside, such as 0 (default: 1000 if root runs it, else yours)")
	f.StringVar(&o.Net, "net", "none", "network: none, or host, which is this host's without limits; --allow-net and --secret make one of named hosts")
	f.StringArrayVar(&o.Allow, "allow-net", nil, "let it reach `HOST[:PORT]` and no other; *.DOMAIN, @PRESET, localhost:PORT and HOST:PORT,raw work too (default port 443); HOST,intercept opens TLS")
	f.StringArrayVar(&o.Requests, "net-allow", nil, "open TLS to a host and send it only `'HOST=METHOD PATH'` requests, such as 'pypi.org=GET /simple/**'; implies --allow-net HOST")
	f.StringArrayVar(&o.Secrets, "secret", nil, "let it use the key NAME of `NAME@HOST` without knowing it: NAME is a placeholder inside; NAME=file:PATH@HOST, NAME=json:KEY:PATH@HOST and NAME=cmd:COMMAND@HOST work too; NAME alone is a secret of the server (--endpoint)")
	f.StringArrayVar(&o.Limited, "secret-allow", nil, "send only `'NAME=METHOD PATH'` requests to the hosts of secret NAME, such as 'KEY=POST /v1/*'")
	f.StringArrayVar(&o.Publish, "publish", nil, "show the TCP port `[HOSTPORT:]PORT` of its localhost on this host, at an address 127.0.0.N that only this sandbox has")
	f.StringArrayVar(&o.NetLimits, "net-limit", nil, "limit the network of named hosts by `LIMITS`, such as connections=100,new=10/s,out=50M,in=1G,rate=1M/s")
	f.StringArrayVar(&o.SecretLimits, "secret-limit", nil, "limit the use of secret NAME by `NAME=LIMITS`, such as KEY=requests=1000,rate=10/m,out=10M,in=1G")
	f.StringArrayVar(&o.Mounts, "mount", nil, "show the host path of `SRC[:DST][:MODE]` inside, at the same path or at DST; MODE is ro (the default), cow, bind or a preset")
	f.BoolVar(&o.Toolchains, "toolchains", false, "show the toolchains on your PATH that are not part of the system, read-only: go, cargo, node, python, java and others")
	f.StringArrayVar(&o.Scratch, "scratch", nil, "do not review what the directory `DIR` of the workspace contains, such as node_modules: it stays with the sandbox; none: no directory")
	f.StringVar(&o.Git, "git", "source", "git repository inside: `source`, or clean[:DEPTH] for a new one with the last 50 (or DEPTH, or all) commits, without what the policy hides")
	f.Var(&o.Memory, "memory", "limit of memory, such as 512M")
	f.Float64Var(&o.CPUs, "cpus", 0, "limit of processors, such as 1.5")
	f.Int64Var(&o.PIDs, "pids", 0, "limit of processes and threads")
	f.Var(&o.Disk, "disk", "limit of what the deltas of the workspace and of all mounts may hold together, such as 1G")
	f.DurationVar(&o.Timeout, "timeout", 0, "end each command after this time, such as 30s")
	f.StringVar(&o.Home, "home", record.HomePrivate, "home directory inside: private, new and empty with each start, or keep, which stays until the sandbox is removed")
	o.Ask.register(cmd)
	f.BoolVar(&o.Board, "board", false, "let programs inside lock paths for it, and exchange messages with the other sandboxes of the source")
	cmd.RegisterFlagCompletionFunc("home", cobra.FixedCompletions(record.Homes(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("preset", cobra.FixedCompletions(allPresets(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions(runtimeNames, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("net", cobra.FixedCompletions([]string{"none", "host"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("git", cobra.FixedCompletions([]string{"source", "clean", "clean:all"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("allow-net", cobra.FixedCompletions(allowPresets(), cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagDirname("dir")
	cmd.MarkFlagFilename("policy", "yaml", "yml")
	cmd.MarkFlagsMutuallyExclusive("preset", "policy")
	cmd.MarkFlagsMutuallyExclusive("dir", "codebase")
}

// changed reports whether any of the named flags was given.
func changed(cmd *cobra.Command, names []string) bool {
	return slices.ContainsFunc(names, cmd.Flags().Changed)
}

var runtimeNames = []string{record.RuntimeBwrap, record.RuntimeDocker}

// defaultImage is the server's too.
func defaultImage() string { return config.Default().Runtime.Docker.DefaultImage }

// minMemory is less than any sandbox needs for itself.
const minMemory = 1 << 20

// check refuses what no sandbox could have, before anything is touched.
func (o *sandboxOptions) check() error {
	switch {
	case !slices.Contains(runtimeNames, o.Runtime):
		return errdefs.New(errdefs.Invalid, "--runtime %s: want bwrap or docker%s", o.Runtime, didYouMean(o.Runtime, runtimeNames))
	case o.Image != "" && !config.IsImage(o.Image):
		return errdefs.New(errdefs.Invalid, "--image %s: malformed; want [REGISTRY/]NAME[:TAG][@DIGEST], such as debian:12", vpath.Quote(o.Image))
	case o.Image != "" && o.Runtime != record.RuntimeDocker:
		return errdefs.New(errdefs.Invalid, "--image %s: only with --runtime docker", o.Image)
	case !slices.Contains(record.Homes(), o.Home):
		return errdefs.New(errdefs.Invalid, "--home %s: want keep or private%s", vpath.Quote(o.Home), didYouMean(o.Home, record.Homes()))
	}
	if err := o.checkLimits(); err != nil {
		return err
	}
	if err := o.checkNetwork(); err != nil {
		return err
	}
	if err := o.Ask.check(); err != nil {
		return err
	}
	return o.checkUser()
}

func (o *sandboxOptions) checkLimits() error {
	switch {
	case !(o.CPUs >= 0) || o.CPUs > 4096:
		return errdefs.New(errdefs.Invalid, "--cpus %v: want a positive number", o.CPUs)
	case o.Memory != 0 && o.Memory < minMemory:
		return errdefs.New(errdefs.Invalid, "--memory %s: too small; want a number with K, M, G or T, such as 512M", o.Memory.String())
	case o.PIDs < 0:
		return errdefs.New(errdefs.Invalid, "--pids %d: want a positive number", o.PIDs)
	case o.Timeout < 0:
		return errdefs.New(errdefs.Invalid, "--timeout %s: want a positive duration", o.Timeout)
	}
	return nil
}

func (o *sandboxOptions) checkUser() error {
	uid, err := record.ParseUser(o.User)
	if err == nil {
		err = record.CheckUser(uid, o.Runtime)
	}
	return err
}

// didYouMean ends an error's text with the nearest valid word, if one is near.
func didYouMean(word string, valid []string) string {
	if near := nearest.Word(word, valid); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}

// flagRules turns --write, --read, --view and --hide into rules. Patterns that
// name an existing directory cover all below it, and the person is told so.
func (o *sandboxOptions) flagRules(e *env, isDir func(string) bool) ([]policy.Rule, error) {
	groups := []struct {
		origin     policy.Origin
		permission policy.Permission
		patterns   []string
	}{
		{policy.OriginFlag, policy.Write, o.Write},
		{policy.OriginFlag, policy.Read, o.Read},
		{policy.OriginFlag, policy.View, o.View},
		{policy.OriginHide, policy.None, o.Hide},
	}
	var rules []policy.Rule
	for _, g := range groups {
		for _, p := range g.patterns {
			r, note, err := policy.ParseFlag(g.origin, g.permission, p, isDir)
			if err != nil {
				return nil, err
			}
			if note != "" {
				e.say("%s", note)
			}
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// notOnHost refuses patterns that are paths of the host below source: from the
// workspace's root they match nothing, and what was to be hidden is not.
func notOnHost(rules []policy.Rule, source string) error {
	for _, r := range rules {
		if inside, ok := strings.CutPrefix(r.Pattern, strings.TrimSuffix(source, "/")+"/"); ok && source != "/" && source != "" {
			return errdefs.New(errdefs.Invalid, "pattern %q: it is a path of this host, and patterns begin at the workspace's root: write %q", r.Pattern, "/"+inside)
		}
	}
	return nil
}

// rules returns the policy of a sandbox and, for people, where it is from:
// --policy, --preset, the project's policy file or the default preset, in this
// order, then the flags' own rules.
//
// source is the directory on this host, "" for a codebase. isDir tells of a path whether
// it is a directory there.
func (o *sandboxOptions) rules(e *env, home *record.Home, source string, isDir func(string) bool) ([]policy.Rule, string, error) {
	isChosen := o.Policy != "" && !o.isProjects || o.Preset != ""
	base, note, err := o.baseRules(e, home, source)
	if err != nil {
		return nil, "", err
	}
	own, err := o.userRules(e, source, base, isChosen)
	if err != nil {
		return nil, "", err
	}
	if len(own) > 0 {
		base, note = append(base, own...), fmt.Sprintf("%s, %d of yours", note, len(own))
	}
	extra, err := o.flagRules(e, isDir)
	if err == nil {
		err = notOnHost(extra, source)
	}
	if err != nil {
		return nil, "", err
	}
	if len(extra) > 0 {
		note += fmt.Sprintf(" and %d from flags", len(extra))
	}
	return append(slices.Clone(base), extra...), note, nil
}

func (o *sandboxOptions) baseRules(e *env, home *record.Home, source string) ([]policy.Rule, string, error) {
	if o.Policy != "" {
		doc, rules, err := loadPolicyFile(o.Policy, source)
		if err != nil {
			return nil, "", err
		}
		if dir, above := ofDirectoryAbove(o.Policy, source); above {
			doc, rules, err = moveBelow(doc, rules, dir, source)
			if err != nil {
				return nil, "", err
			}
		}
		o.useFile(doc)
		return rules, "file " + vpath.Escape(o.Policy), nil
	}
	if o.Preset == "" && source != "" {
		doc, rules, note, err := e.projectRules(home, source)
		if err != nil {
			return nil, "", err
		}
		if doc != nil {
			o.useFile(doc)
			return rules, note, nil
		}
	}
	name := cmp.Or(o.Preset, o.defaultPreset, preset.Default)
	rules, err := preset.Rules(name)
	return rules, "preset " + name, err
}

// loadPolicyFile reads the policy file at path. Below the source no symbolic
// link is followed, for that is where others write. Elsewhere the user's own
// links count, and a pipe that a shell passes in (safefs.ReadNamed). An empty
// source is none.
func loadPolicyFile(path, source string) (*policyfile.Document, []policy.Rule, error) {
	read := func() ([]byte, error) { return safefs.ReadNamed(path, policyfile.MaxBytes) }
	if rel, ok := relBelow(source, path); ok && source != "" {
		read = func() ([]byte, error) { return safefs.ReadRegularIn(source, rel, policyfile.MaxBytes) }
	}
	content, err := read()
	if err != nil {
		return nil, nil, errdefs.New(errdefs.Invalid, "policy file %s: %w", vpath.Escape(path), err)
	}
	return parsePolicy(content, path)
}

// mountRules reads the policy file of a mount.
func mountRules(path, source string) ([]policy.Rule, error) {
	doc, rules, err := loadPolicyFile(path, source)
	switch {
	case err != nil:
	case doc.Network != nil:
		err = doc.Network.At(errdefs.New(errdefs.Invalid, "the policy of a mount cannot have this key: name the hosts with --allow-net"))
	case len(doc.Scratch) > 0:
		err = doc.Scratch[0].At(errdefs.New(errdefs.Invalid, "a mount has no scratch directories: they are parts of the workspace"))
	}
	return rules, err
}

// relBelow returns path relative to dir if its text says that it lies below.
func relBelow(dir, path string) (rel string, ok bool) {
	dir, err := realPath(dir)
	if err != nil {
		return "", false
	}
	if !filepath.IsAbs(path) {
		here, err := realPath(".")
		if err != nil {
			return "", false
		}
		path = filepath.Join(here, path)
	}
	rel, err = filepath.Rel(dir, path)
	return rel, err == nil && filepath.IsLocal(rel)
}

func parsePolicy(content []byte, name string) (*policyfile.Document, []policy.Rule, error) {
	doc, err := policyfile.Load(bytes.NewReader(content), vpath.Escape(name))
	if err == nil {
		_, err = hostsOf(doc.Network)
	}
	if err == nil {
		_, err = scratchOf(doc)
	}
	if err != nil {
		return nil, nil, err
	}
	rules, err := doc.AllRules()
	return doc, rules, err
}

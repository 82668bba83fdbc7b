package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/learn"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/secretscan"
)

// learned takes what a command used. The sandbox does not live any more, and its log since the
// record before is that of the command.
type learned func(ctx context.Context, b backend.Backend, sb backend.Sandbox, used []api.Used, before uint64) error

// learning is where --learn writes, nil without it. Its methods do nothing then.
type learning struct {
	learned learned // if set, it takes what was used, and nothing is written
	file    string  // "-": stdout
	text    []byte  // of the file that exists
	into    *policyfile.Document
	used    []api.Used
}

func learnFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "learn", "", "record what is used, and write the policy that permits it to `FILE`; added to a policy file that exists; -: stdout")
	cmd.MarkFlagsMutuallyExclusive("learn", "detach")
}

func (o *runOptions) startLearning(cmd *cobra.Command) (*learning, error) {
	if o.learned != nil {
		return &learning{learned: o.learned}, nil
	}
	return startLearning(cmd, o.Learn)
}

// startLearning reads the file that exists, so that what is wrong with it is said before the
// command runs.
func startLearning(cmd *cobra.Command, file string) (*learning, error) {
	l := &learning{file: file}
	switch {
	case !cmd.Flags().Changed("learn"):
		return nil, nil
	case file == "":
		return nil, usageError{errdefs.New(errdefs.Invalid, "--learn: the name of the file is missing; - means stdout")}
	case file == "-":
		return l, nil
	}
	var err error
	l.text, err = safefs.ReadNamed(file, policyfile.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "--learn %s: %w", vpath.Escape(file), err)
		}
		return l, nil
	case err == nil:
		l.into, _, err = parsePolicy(l.text, file)
		if err == nil {
			err = canBeAddedTo(l.text)
		}
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--learn: what is learned is added to the policy file that exists, but: %w", err)
	}
	return l, nil
}

// canBeAddedTo refuses a file to whose lists nothing can be added.
func canBeAddedTo(text []byte) error {
	edit, err := policyfile.Edit(text)
	if err != nil {
		return err
	}
	for _, keys := range [][]string{{"rules"}, {"network", "allow"}, {"expect"}} {
		edit.Add(func(string) string { return "" }, keys...)
	}
	_, err = edit.Result()
	return err
}

// take asks for what was used, while the sandbox lives.
func (l *learning) take(ctx context.Context, live backend.Live) (err error) {
	if l != nil {
		l.used, err = live.Used(ctx)
	}
	return err
}

// write learns the policies and writes them.
func (l *learning) write(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, sb backend.Sandbox, c backend.Command, before uint64) error {
	if l == nil || len(l.used) == 0 {
		return nil
	}
	if l.learned != nil {
		return l.learned(ctx, b, sb, l.used, before)
	}
	now, err := b.Policy(ctx, sb.Ref())
	if err != nil {
		return err
	}
	in, err := e.learnInput(ctx, b, now, before)
	if err != nil {
		return err
	}
	in.Command, in.Into = commandLine(c.Argv), l.into
	in.Uses, in.Omitted = l.used[0].Uses, l.used[0].Omitted
	learned, err := learn.Learn(in)
	if err != nil {
		return err
	}
	if err := l.save(e, l.file, learned); err != nil {
		return err
	}
	if l.file != "-" {
		e.sayUse(l.file)
	}
	return l.writeMounts(ctx, e, cmd, &now.Record, in.Command)
}

// save writes a policy, or adds it to the file that exists.
func (l *learning) save(e *env, file string, learned *learn.Learned) error {
	var b bytes.Buffer
	var err error
	if l.into != nil {
		var merged []byte
		merged, err = learned.MergeInto(l.text, l.into)
		b.Write(merged)
	} else {
		err = learned.Write(&b)
	}
	switch {
	case err != nil:
		return err
	case file == "-":
		_, err = e.stdout.Write(b.Bytes())
		return err
	case l.into != nil && bytes.Equal(b.Bytes(), l.text):
		e.say("learned nothing new: %s permits all that was used", vpath.Escape(file))
		return nil
	}
	if err := replaceFile(file, b.Bytes(), l.text); err != nil {
		return errdefs.New(safefs.Kind(err), "--learn %s: %w", vpath.Escape(file), err)
	}
	e.sayLearned(file, learned, l.into != nil)
	return nil
}

func (e *env) sayLearned(file string, learned *learn.Learned, added bool) {
	word := "wrote"
	if added {
		word = "added to"
	}
	e.say("learned %s from %s: %s %s", plural(len(learned.Rules), "rule"), plural(learned.Paths, "used path"), word, vpath.Escape(file))
	for _, n := range learned.Notes {
		e.say("%s", vpath.Escape(n))
	}
}

func (e *env) sayUse(file string) {
	e.say("look: agentfense policy tree --policy %[1]s · test: agentfense policy test %[1]s · use: agentfense run --policy %[1]s -- …", shellWord(file))
}

// replaceFile writes a file in one step. A file that exists must still have the text that was
// read. Errors: those of the system.
func replaceFile(file string, text, known []byte) error {
	if known == nil {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		return errors.Join(err, f.Close())
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	if now, err := os.ReadFile(real); err != nil || !bytes.Equal(now, known) {
		return errdefs.New(errdefs.Precondition, "somebody changed it meanwhile, so it stays as it is")
	}
	return safefs.Replace(real, text, info.Mode().Perm())
}

// learnInput is what is known of the workspace.
func (e *env) learnInput(ctx context.Context, b backend.Backend, now backend.Policy, before uint64) (learn.Input, error) {
	r := &now.Record
	in := learn.Input{
		Base: r.Rules, Options: policy.Options{Reserved: now.Reserved},
		List: listSource(string(r.Source.Path)), Network: r.Net == record.NetNamed, Scratch: scratch.At(r.Scratch),
	}
	var err error
	if in.Secrets, err = e.secretsIn(ctx, string(r.Source.Path)); err != nil {
		return in, err
	}
	refusals, hosts := map[string]int{}, map[string]int{}
	err = b.Audit(ctx, r.Name, before, false, func(rec audit.Record) error {
		switch event := rec.Event.(type) {
		case audit.PermissionDenied:
			if event.Mount == "" {
				refusals[fmt.Sprintf("%s %s (permission %s)", event.Operation, event.Path, event.Permission)] += event.Count
			}
		case audit.NetworkDenied:
			refusals[refusedHost(event)] += event.Count
		case audit.NetworkAllowed:
			hosts[learnedHost(event)]++
		}
		return nil
	})
	for text, count := range hosts {
		in.Hosts = append(in.Hosts, learn.Host{Text: text, Connections: count})
	}
	in.Refused = fewRefusals(refusals)
	return in, err
}

// refusedHost says which host was refused. A name that was looked up has no port.
func refusedHost(d audit.NetworkDenied) string {
	if d.Socket != "" {
		return fmt.Sprintf("%s (%s)", d.Socket, d.Reason)
	}
	host := string(d.Host)
	if d.Port != 0 {
		host = fmt.Sprintf("%s:%d", host, d.Port)
	}
	return fmt.Sprintf("host %s (%s)", host, d.Reason)
}

// learnedHost is a connection as network.allow permits it. The rule may name more hosts.
func learnedHost(a audit.NetworkAllowed) string {
	host := string(a.Host)
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if a.Port != 443 {
		host += fmt.Sprintf(":%d", a.Port)
	}
	if i := strings.IndexAny(string(a.Rule), ", "); i >= 0 {
		host += string(a.Rule)[i:]
	}
	return host
}

const maxRefusals = 20

// fewRefusals lists refusals, the most frequent first.
func fewRefusals(counts map[string]int) []learn.Refusal {
	var texts []string
	for text := range counts {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	var list []learn.Refusal
	for _, text := range texts[:min(len(texts), maxRefusals)] {
		list = append(list, learn.Refusal(fmt.Sprintf("%s, %s", text, times(counts[text]))))
	}
	if more := len(texts) - len(list); more > 0 {
		list = append(list, learn.Refusal(fmt.Sprintf("… and %d more", more)))
	}
	return list
}

// listSource lists directories of a source, and follows no link.
func listSource(dir string) func(vpath.Path) []learn.Entry {
	return func(p vpath.Path) []learn.Entry {
		root, err := os.Open(dir)
		if err != nil {
			return nil
		}
		defer root.Close()
		fd, err := safefs.Open(int(root.Fd()), p.Rel(), unix.O_DIRECTORY|unix.O_RDONLY, 0)
		if err != nil {
			return nil
		}
		f := os.NewFile(uintptr(fd), p.Rel())
		defer f.Close()
		entries, err := f.ReadDir(-1)
		if err != nil {
			return nil
		}
		list := make([]learn.Entry, 0, len(entries))
		for _, entry := range entries {
			list = append(list, learn.Entry{Name: entry.Name(), Dir: entry.IsDir()})
		}
		return list
	}
}

func isDirIn(dir string, p vpath.Path) bool {
	info, err := os.Lstat(filepath.Join(dir, p.Rel()))
	return err == nil && info.IsDir()
}

// commandLine is a command as a person types it.
func commandLine(argv []string) string {
	if len(argv) == 3 && argv[1] == "-c" && (argv[0] == "sh" || argv[0] == "bash") {
		return argv[2]
	}
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = shellWord(a)
	}
	return strings.Join(words, " ")
}

// secretsIn looks for secrets in a directory.
func (e *env) secretsIn(ctx context.Context, dir string) ([]learn.Secret, error) {
	p := e.progress("looking for secrets in " + dir)
	defer p.stop()
	found, err := secretscan.Scan(ctx, dir)
	var all []learn.Secret
	for _, f := range found.Findings {
		all = append(all, learn.Secret{Path: f.Path, Dir: isDirIn(dir, f.Path), Reason: f.Reason})
	}
	return all, err
}

// writeMounts writes the policies of the mounts that have rules, each beside the file.
func (l *learning) writeMounts(ctx context.Context, e *env, cmd *cobra.Command, r *record.Record, command string) error {
	for _, u := range l.used[1:] {
		i := slices.IndexFunc(r.Mounts, func(m record.Mount) bool { return m.Name == u.Mount && m.Mode.HasRules() })
		if i < 0 || len(u.Uses) == 0 {
			continue
		}
		m := r.Mounts[i]
		if l.file == "-" {
			e.say("the policy of the mount %s is not learned: that needs --learn with the name of a file", m.Name)
			continue
		}
		ext := filepath.Ext(l.file)
		file := strings.TrimSuffix(l.file, ext) + "." + m.Name + ext
		of, err := startLearning(cmd, file)
		if err != nil {
			return err
		}
		in := learn.Input{Uses: u.Uses, Omitted: u.Omitted, Base: m.Rules, Command: command, List: listSource(string(m.Source)), Into: of.into}
		if in.Secrets, err = e.secretsIn(ctx, string(m.Source)); err != nil {
			return err
		}
		learned, err := learn.Learn(in)
		if err == nil {
			err = of.save(e, file, learned)
		}
		if err != nil {
			return err
		}
		e.say("use: --mount %s,policy=%s", shellWord(string(m.Source)), shellWord(file))
	}
	return nil
}

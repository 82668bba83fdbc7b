package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/learn"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/secretscan"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// fillDraft learns rules and hosts from what a command used of the home directory and of the
// network.
func (e *env) fillDraft(ctx context.Context, b backend.Backend, sb backend.Sandbox, used []api.Used, before uint64, d *profile.Draft) error {
	now, err := b.Policy(ctx, sb.Ref())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(now.Record.Mounts, func(m record.Mount) bool { return m.Name == homeMount })
	if i < 0 {
		return errdefs.New(errdefs.Internal, "profile %s: the sandbox has no mount %s", d.Name, homeMount)
	}
	home, ofHome := now.Record.Mounts[i], api.Used{}
	if of := slices.IndexFunc(used, func(u api.Used) bool { return u.Mount == homeMount }); of >= 0 {
		ofHome = used[of]
	}
	in, secrets, err := homeUses(&now.Record, home, ofHome)
	if err != nil {
		return err
	}
	in.Command = d.From
	learned, err := learnHome(ctx, e, in, string(home.Source))
	if err != nil {
		return err
	}
	for _, r := range learned.Rules {
		if r.Pattern != "/" { // the file has a rule for it
			d.Rules = append(d.Rules, r)
		}
	}
	d.Notes = append(d.Notes, learned.Notes...)
	return e.addLooks(ctx, b, sb, before, string(home.Source), secrets, d)
}

// homeUses returns what rules for the home directory are learned from, and how the command made
// files with names of secrets. The way to what is mounted elsewhere needs no rule, and neither does
// what the command made and removed, which is its own.
func homeUses(r *record.Record, home record.Mount, used api.Used) (learn.Input, map[vpath.Path]string, error) {
	in := learn.Input{Omitted: used.Omitted, Base: home.Rules, List: listSource(string(home.Source))}
	hiding, err := preset.Rules(learn.Preset)
	if err != nil {
		return in, nil, err
	}
	hidden, err := policy.Compile(hiding, policy.Options{})
	if err != nil {
		return in, nil, err
	}
	places := []string{r.Workspace}
	for _, m := range r.Mounts {
		if m.Name != home.Name {
			places = append(places, string(m.Target))
		}
	}
	secrets := map[vpath.Path]string{}
	for _, u := range used.Uses {
		at := path.Join(string(home.Target), string(u.Path.Plain()))
		switch {
		case u.Kind&uses.Created != 0 && u.Kind&uses.Removed != 0 && !exists(string(home.Source), u.Path.Plain()): // for a moment
		case slices.ContainsFunc(places, func(p string) bool { return safefs.IsBelow(p, at) }):
		case hidden.Decide(u.Path.Plain()).Rule == policy.NoRule:
			in.Uses = append(in.Uses, u)
		case u.Kind&(uses.Created|uses.Written) != 0:
			secrets[u.Path.Plain()] = "made by the command"
		}
	}
	return in, secrets, nil
}

// learnHome learns rules for the home directory. Where they show more than single files, it looks
// for secrets, and hides those.
func learnHome(ctx context.Context, e *env, in learn.Input, source string) (*learn.Learned, error) {
	learned, err := learn.Learn(in)
	if err != nil {
		return nil, err
	}
	for _, dir := range widest(learned.Rules) {
		if info, err := os.Lstat(filepath.Join(source, dir)); err != nil || !info.IsDir() {
			continue // the command made it
		}
		p := e.progress("looking for secrets in " + filepath.Join(source, dir))
		found, err := secretscan.Scan(ctx, filepath.Join(source, dir))
		p.stop()
		if err != nil {
			return nil, err
		}
		for _, f := range found.Findings {
			at := vpath.Path(path.Join("/", dir, string(f.Path)))
			in.Secrets = append(in.Secrets, learn.Secret{Path: at, Dir: isDirIn(source, at), Reason: f.Reason})
		}
	}
	return learn.Learn(in)
}

// widest returns the directories in which rules show more than single paths, without those below
// others.
func widest(rules []learn.Rule) []string {
	var dirs []string
	for _, r := range rules {
		if r.Permission < policy.Read || !strings.ContainsAny(r.Pattern, policy.Metacharacters) {
			continue
		}
		before := r.Pattern[:strings.IndexAny(r.Pattern, policy.Metacharacters)]
		dirs = append(dirs, path.Clean("/"+before[:strings.LastIndexByte(before, '/')+1]))
	}
	return outermost(dirs)
}

// maxLooks bounds how many refusals of each kind a profile lists.
const maxLooks = 20

// addLooks adds to a draft the hosts that were reached and refused, and the looks at names of
// secrets.
func (e *env) addLooks(ctx context.Context, b backend.Backend, sb backend.Sandbox, before uint64, source string, secrets map[vpath.Path]string, d *profile.Draft) error {
	hosts, refused := map[string]int{}, map[string]int{}
	err := b.Audit(ctx, sb.Ref(), before, false, func(rec audit.Record) error {
		switch event := rec.Event.(type) {
		case audit.PermissionDenied:
			at := vpath.Path(event.Path).Plain()
			if event.Mount == homeMount && strings.HasSuffix(string(event.RuleSource), profile.HidesSecretNames) && isFile(source, at) {
				secrets[at] = event.Operation + ", refused"
			}
		case audit.NetworkAllowed:
			hosts[learnedHost(event)]++
		case audit.NetworkDenied:
			if event.Socket != "" {
				return nil // no profile can allow it
			}
			text := string(event.Host)
			if event.Port != 0 && event.Port != 443 {
				text += fmt.Sprintf(":%d", event.Port)
			}
			refused[text] += max(event.Count, 1)
		}
		return nil
	})
	for host, n := range hosts {
		d.Hosts = append(d.Hosts, learn.Host{Text: host, Connections: n})
	}
	slices.SortFunc(d.Hosts, func(a, b learn.Host) int { return cmp.Compare(a.Text, b.Text) })
	for host, n := range refused {
		d.Refused = append(d.Refused, profile.RefusedHost{Text: host, Count: n})
	}
	slices.SortFunc(d.Refused, func(a, b profile.RefusedHost) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Text, b.Text))
	})
	for at, how := range secrets {
		d.Secrets = append(d.Secrets, profile.Look{Path: at, How: how})
	}
	slices.SortFunc(d.Secrets, func(a, b profile.Look) int { return cmp.Compare(a.Path, b.Path) })
	if more := max(len(d.Refused), len(d.Secrets)) - maxLooks; more > 0 {
		d.Notes = append(d.Notes, "more was refused than is listed here")
	}
	d.Refused, d.Secrets = d.Refused[:min(len(d.Refused), maxLooks)], d.Secrets[:min(len(d.Secrets), maxLooks)]
	return err
}

// exists reports whether a directory may have a path. It follows no link at its end.
func exists(dir string, p vpath.Path) bool {
	_, err := os.Lstat(filepath.Join(dir, p.Rel()))
	return !errors.Is(err, fs.ErrNotExist)
}

// isFile reports whether a directory has a file at a path. It does not open it.
func isFile(dir string, p vpath.Path) bool {
	info, err := os.Lstat(filepath.Join(dir, p.Rel()))
	return err == nil && info.Mode().IsRegular()
}

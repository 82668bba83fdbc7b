package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/view/policy/prove"
)

type verifyOptions struct {
	Allowed string // file of allowed signers
	Signer  string
	Dir     string
	Commit  string // revision of the repository Repo
	Repo    string
	Revoked string   // file of revoked keys
	Audit   string   // file of an audit log
	Archive []string // files to which records of that log were moved
	Sandbox string   // name or id, to find that file
	Prove   []string
	JSON    bool
}

func newVerify(e *env) *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify [flags] FILE",
		Short: "Check a statement that apply --attest made",
		Long: `Check the statement in FILE, which apply --attest made, and its signature in FILE.sig.
The signer must be in the file of allowed signers, which ssh-keygen(1) describes.

The signature covers all that the statement says. --dir compares the files of a directory
with what was applied, for a mount those of its source. For apply --to-branch, --commit
checks that a revision is the commit that was made, that it has what was applied, and that
it changes nothing else. --audit or --sandbox checks the
audit log of the sandbox; with --endpoint, --sandbox is one of the server. If records of the
log were moved to archives, each needs --archive. --prove checks an assertion under each policy under which the sandbox ran, as policy prove does: if
"none **/*.pem" holds, the sandbox could not read such files. verify lists what it did
not check. If a check fails, the exit code is 1.`,
		Example: `  agentfense verify fix.json --dir .
  agentfense verify fix.json --commit agent/fix
  agentfense verify fix.json --signer alice@example.com --dir . --sandbox fix
  agentfense verify fix.json --allowed-signers signers --prove 'none **/*.pem'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Commit == "" && (cmd.Flags().Changed("commit") || cmd.Flags().Changed("repo")) {
				return usageError{errdefs.New(errdefs.Invalid, "--repo is about a commit: give --commit REVISION, too")}
			}
			if len(o.Archive) > 0 && o.Audit == "" && o.Sandbox == "" {
				return usageError{errdefs.New(errdefs.Invalid, "--archive is a part of an audit log: give --audit FILE or --sandbox NAME, too")}
			}
			return runVerify(cmd.Context(), e, args[0], o)
		},
	}
	marked(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Allowed, "allowed-signers", "", "`FILE` of the signers that count (default the one that git uses)")
	f.StringVar(&o.Signer, "signer", "", "`NAME` of the only signer that counts, as in the file of allowed signers")
	f.StringVar(&o.Revoked, "revoked", "", "`FILE` of revoked keys, as ssh-keygen(1) describes it (default the one that git uses, if there is one)")
	f.StringVar(&o.Dir, "dir", "", "compare the files below `DIR` with what was applied")
	f.StringVar(&o.Commit, "commit", "", "check the commit that this `REVISION` names, such as a branch, in the repository of --repo")
	f.StringVar(&o.Repo, "repo", ".", "`DIR` in the work tree of the git repository of --commit")
	f.StringVar(&o.Audit, "audit", "", "check the audit log in `FILE`")
	f.StringVar(&o.Sandbox, "sandbox", "", "check the audit log of the sandbox `NAME` of this host, or of a removed one by its id")
	f.StringArrayVar(&o.Archive, "archive", nil, "`FILE` to which audit --archive moved records of the audit log; may be repeated")
	f.StringArrayVar(&o.Prove, "prove", nil, "check that each policy does what this `ASSERTION` says, such as 'none **/*.pem'; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("audit", "sandbox")
	jsonFlag(cmd, &o.JSON)
	return cmd
}

// verifyCheck is one check of a statement, and what it found.
type verifyCheck struct {
	Check    string   `json:"check"`
	OK       bool     `json:"ok"`
	Result   string   `json:"result,omitempty"`   // of a check that found nothing wrong
	Problems []string `json:"problems,omitempty"` // escaped
}

type verifyJSON struct {
	SchemaVersion int           `json:"schema_version"`
	OK            bool          `json:"ok"`
	Checks        []verifyCheck `json:"checks"`
	Network       attest.Reach  `json:"network"`
	NotChecked    []string      `json:"not_checked"`
}

func runVerify(ctx context.Context, e *env, file string, o verifyOptions) error {
	assertions := make([]prove.Assertion, len(o.Prove))
	for i, text := range o.Prove {
		var err error
		if assertions[i], err = prove.Parse(text); err != nil {
			return usageError{err}
		}
	}
	text, signature, err := attest.ReadFiles(file)
	signers := attest.Signers{Allowed: o.Allowed, Only: o.Signer, Revoked: o.Revoked}
	if err == nil {
		err = signers.FromGit(ctx)
	}
	signer := ""
	if err == nil {
		signer, err = signers.Check(ctx, text, signature)
	}
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "verify %s: %w", vpath.Escape(file), err)
	}
	st, err := attest.Parse(text)
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "verify %s: signed by %s, but %w", vpath.Escape(file), vpath.Escape(signer), err)
	}
	v := verifyJSON{SchemaVersion: schemaVersion, OK: true, NotChecked: []string{}, Network: st.Reach()}
	v.add("signature", "good, of "+vpath.Escape(signer), nil)
	if err := errors.Join(v.checkFiles(st, o), v.checkCommit(ctx, st, o)); err != nil {
		return err
	}
	if err := v.checkLog(ctx, e, st, o); err != nil {
		return err
	}
	if err := v.prove(st, assertions, o.Prove); err != nil {
		return err
	}
	if o.JSON {
		err = e.printJSON(v)
	} else {
		err = v.print(e, st)
	}
	if err == nil && !v.OK {
		return exitError(exitFailure)
	}
	return err
}

// add notes a check.
func (v *verifyJSON) add(check, result string, problems []string) {
	c := verifyCheck{Check: check, OK: len(problems) == 0, Problems: problems}
	if c.OK {
		c.Result = result
	}
	v.OK = v.OK && c.OK
	v.Checks = append(v.Checks, c)
}

// checkFiles compares a directory with what was applied.
func (v *verifyJSON) checkFiles(st *attest.Statement, o verifyOptions) error {
	if o.Dir == "" {
		if o.Commit == "" {
			v.NotChecked = append(v.NotChecked, "the files (--dir DIR)")
		}
		return nil
	}
	differ, err := st.CompareDir(o.Dir)
	if err == nil {
		v.add("files", plural(len(st.Predicate.Changes), "change")+" as applied", differ)
	}
	return err
}

// checkCommit compares a commit with what was applied.
func (v *verifyJSON) checkCommit(ctx context.Context, st *attest.Statement, o verifyOptions) error {
	if o.Commit == "" {
		if st.Predicate.Commit != nil {
			v.NotChecked = append(v.NotChecked, "the commit (--commit REVISION)")
		}
		return nil
	}
	differ, err := st.CheckCommit(ctx, o.Repo, o.Commit)
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "verify: commit %s: %w", vpath.Quote(o.Commit), err)
	}
	v.add("commit", plural(len(st.Predicate.Changes), "change")+" as applied, and nothing else", differ)
	return nil
}

// checkLog checks an audit log.
func (v *verifyJSON) checkLog(ctx context.Context, e *env, st *attest.Statement, o verifyOptions) error {
	path := o.Audit
	switch {
	case o.Sandbox != "" && e.address() != "":
		fetched, err := e.fetchLog(ctx, o.Sandbox)
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(fetched) }()
		path = fetched
	case o.Sandbox != "":
		home, err := e.openHome()
		if err == nil {
			path, err = home.FindLog(o.Sandbox)
		}
		if err != nil {
			return err
		}
	case path == "":
		v.NotChecked = append(v.NotChecked, "the audit log (--audit FILE or --sandbox NAME)")
		return nil
	}
	summary, err := st.CheckLog(path, o.Archive...)
	if errdefs.Is(err, errdefs.Invalid) {
		v.add("audit log", "", []string{err.Error()})
		return nil
	}
	if err == nil {
		lost := ""
		if summary.Gaps > 0 {
			lost = fmt.Sprintf(", but it lost %d records (%s)", summary.Lost, plural(summary.Gaps, "gap"))
		}
		v.add("audit log", "whole"+lost+", with the record that the statement names, and with no other policy, mount or host", nil)
	}
	return err
}

// fetchLog writes the audit log of a server's sandbox to a temporary file and returns its name.
func (e *env) fetchLog(ctx context.Context, name string) (file string, err error) {
	err = e.onServer(ctx, e.address(), func(ctx context.Context, s backend.Server) error {
		f, err := os.CreateTemp("", "agentfense-audit-")
		if err != nil {
			return errdefs.New(errdefs.Internal, "audit log: %w", err)
		}
		file = f.Name()
		err = s.Audit(ctx, name, 0, false, func(r audit.Record) error {
			_, err := fmt.Fprintf(f, "%s\n", r.Raw)
			return err
		})
		return errors.Join(err, f.Close())
	})
	if err != nil && file != "" {
		_ = os.Remove(file) // the error says what is wrong
	}
	return file, err
}

// prove checks the assertions for each policy.
func (v *verifyJSON) prove(st *attest.Statement, assertions []prove.Assertion, texts []string) error {
	policies, err := st.Compile()
	if err != nil {
		return err
	}
	named := st.Policies()
	for i, a := range assertions {
		var problems []string
		for _, c := range st.Predicate.Contributors {
			if c.Imported != "" {
				problems = append(problems, fmt.Sprintf("changes are of %s, and it is not known what its author could read", &c))
			}
		}
		for n, p := range policies {
			c, holds, err := prove.Holds(p, a)
			if err != nil {
				return fmt.Errorf("verify: %s: %w", vpath.Quote(texts[i]), err)
			}
			if !holds {
				problems = append(problems, fmt.Sprintf("%s is %s under policy %s", pathText(c.Path, c.Dir), c.Got(), named[n].SHA256[:12]))
			}
		}
		v.add(vpath.Escape(texts[i]), fmt.Sprintf("holds for each policy (%d)", len(policies)), problems)
	}
	if len(assertions) == 0 {
		v.NotChecked = append(v.NotChecked, "what the policies hide (--prove ASSERTION)")
	}
	return nil
}

func (v *verifyJSON) print(e *env, st *attest.Statement) error {
	var b strings.Builder
	p := &st.Predicate
	in := ""
	if p.Mount != "" {
		in = ", in mount " + vpath.Escape(p.Mount)
	}
	if p.Commit != nil {
		in += ", in commit " + shortID(p.Commit.ID) + " on branch " + p.Commit.Branch
	}
	fmt.Fprintf(&b, "%s of sandbox %s%s, applied %s\n", plural(len(p.Changes), "change"), vpath.Escape(p.Sandbox.Name), in, p.Time.Local().Format("2006-01-02 15:04"))
	if p.LeftOut > 0 {
		fmt.Fprintf(&b, "%s left out of the apply\n", plural(p.LeftOut, "change"))
	}
	for _, c := range p.Contributors {
		fmt.Fprintf(&b, "the sandbox had changes of %s\n", &c)
	}
	printReach(&b, v.Network)
	for _, c := range v.Checks {
		if c.OK {
			fmt.Fprintf(&b, "ok      %s: %s\n", c.Check, c.Result)
		}
		for _, problem := range c.Problems {
			fmt.Fprintf(&b, "FAILED  %s: %s\n", c.Check, problem)
		}
	}
	if len(v.NotChecked) > 0 {
		fmt.Fprintf(&b, "not checked: %s\n", strings.Join(v.NotChecked, "; "))
	}
	_, err := e.stdout.WriteString(b.String())
	return err
}

// printReach says what the author of the changes could reach.
func printReach(b *strings.Builder, r attest.Reach) {
	what := "no host"
	switch {
	case r.Any:
		what = "any host"
	case len(r.Hosts) > 0:
		what = "only " + vpath.Escape(strings.Join(r.Hosts, ", "))
	}
	fmt.Fprintf(b, "network, since it was made: %s\n", what)
	for _, port := range r.Publish {
		fmt.Fprintf(b, "network, since it was made: programs of the host could connect to its port %d\n", port)
	}
	if r.Unknown {
		b.WriteString("network: what the author of the imported file could reach is not known\n")
	}
}

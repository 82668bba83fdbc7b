package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
)

// attestOptions are the flags of an apply that makes a statement.
type attestOptions struct {
	Attest    string // file of the statement
	AttestKey string // file of the key
}

func (o *attestOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Attest, "attest", "", "write a signed statement about what was applied to the new `FILE`")
	f.StringVar(&o.AttestKey, "attest-key", "", "`FILE` of the key of ssh that signs the statement (default the one with which git signs, else ~/.ssh/id_ed25519)")
	for _, flag := range []string{"dry-run", "latest", "all", "patch", "hunk"} {
		cmd.MarkFlagsMutuallyExclusive("attest", flag)
	}
}

// prepare finds out what could prevent the statement, before anything is applied.
func (o *attestOptions) prepare(ctx context.Context, e *env, options *backend.ApplyOptions) (err error) {
	if o.Attest == "" {
		if o.AttestKey != "" {
			return usageError{errdefs.New(errdefs.Invalid, "--attest-key is for --attest (see `agentfense apply --help`)")}
		}
		return nil
	}
	for _, file := range []string{o.Attest, o.Attest + attest.SignatureSuffix} {
		if _, err := os.Lstat(file); err == nil {
			return errdefs.New(errdefs.Exists, "--attest %s: the file exists; nothing was applied", vpath.Escape(file))
		}
	}
	if o.AttestKey == "" {
		if o.AttestKey, err = attest.FindKey(ctx, e.getenv("HOME")); err != nil {
			return err
		}
	}
	if err := attest.CheckKey(ctx, o.AttestKey); err != nil {
		return errdefs.New(errdefs.KindOf(err), "--attest: %w; nothing was applied", err)
	}
	options.Attest = true
	return nil
}

// sign writes the statement and signs it.
func (o *attestOptions) sign(ctx context.Context, e *env, statement []byte) error {
	if len(statement) == 0 {
		return nil
	}
	if err := attest.WriteNew(o.Attest, statement); err != nil {
		return errdefs.New(errdefs.KindOf(err), "the changes were applied, but the statement could not be written: %w", err)
	}
	signature, err := attest.Sign(ctx, statement, o.AttestKey)
	if err == nil {
		err = attest.WriteNew(o.Attest+attest.SignatureSuffix, signature)
	}
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "the changes were applied and %[1]s was written, but not signed: %[2]w; to sign it: ssh-keygen -Y sign -n %[3]s -f KEY %[1]s",
			vpath.Escape(o.Attest), err, attest.Namespace)
	}
	e.say("statement: %[1]s, signed in %[1]s%[2]s; to check it: agentfense verify %[1]s", vpath.Escape(o.Attest), attest.SignatureSuffix)
	return nil
}

// sayUnsigned says that there is no statement, if one was asked for.
func (o *attestOptions) sayUnsigned(e *env) {
	if o.Attest != "" {
		e.say("nothing was applied, so there is no statement")
	}
}

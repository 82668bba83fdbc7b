package cli

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
)

func newToken(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens of this host's server",
		Long: `Make, list and revoke the tokens by which programs and people may use the server
of this host (agentfense serve), whether it runs or not. What a token may do is
its scopes: read (see), exec (start, stop, run commands), manage (create, change,
delete, upload) and apply (carry changes over, or discard them). A token with an
owner reaches that owner's codebases and sandboxes alone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenCreate(e), newTokenLs(e), newTokenRevoke(e))
	return cmd
}

// tokenOptions say which server's tokens are meant.
type tokenOptions struct {
	Config string
}

func (o *tokenOptions) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.Config, "config", "", "configuration `FILE` of the server (default: none)")
	cmd.MarkFlagFilename("config", "yaml", "yml")
}

// withTokens calls do with the tokens of this host's server.
func (e *env) withTokens(cmd *cobra.Command, o tokenOptions, do func(context.Context, backend.Tokens) error) error {
	if err := e.hereOnly(cmd.CommandPath()); err != nil {
		return err
	}
	if e.parts == nil {
		return executable.ExecServer()
	}
	c, err := config.Load(o.Config, os.Environ())
	if err != nil {
		return err
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	c.UnderHome(home.Dir())
	tokens, err := e.parts.Tokens(cmd.Context(), c)
	if err != nil {
		return err
	}
	defer tokens.Close()
	return do(cmd.Context(), tokens)
}

type tokenCreateOptions struct {
	tokenOptions
	Token   backend.Token
	Expires string
	JSON    bool
}

func newTokenCreate(e *env) *cobra.Command {
	var o tokenCreateOptions
	cmd := &cobra.Command{
		Use:   "create --scope SCOPES [--owner OWNER] [--expires TIME] [--name NAME]",
		Short: "Make a token and print it, this once",
		Long: `Make a token and print it on stdout. It is shown this once: the server keeps its
SHA-256 alone. Without --owner it reaches everybody's codebases and sandboxes.`,
		Example: `  agentfense token create --owner alice --scope read,exec,manage,apply --expires 30d
  agentfense token create --owner ci --scope read --name nightly > nightly.token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTokenCreate(cmd, e, o) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Token.OwnerID, "owner", "", "owner of the codebases and sandboxes that it reaches (default: all owners)")
	f.StringVar(&o.Token.Scopes, "scope", "", "what it may do: some of read,exec,manage,apply")
	f.StringVar(&o.Expires, "expires", "", "when it ends: after a time such as 12h or 30d, or at 2030-01-31 (default: never)")
	f.StringVar(&o.Token.Name, "name", "", "its name, for ls, revoke and the audit log (default: one is made up)")
	jsonFlag(cmd, &o.JSON)
	o.register(cmd)
	return cmd
}

func runTokenCreate(cmd *cobra.Command, e *env, o tokenCreateOptions) error {
	t := o.Token
	if t.Scopes == "" {
		return usageError{errdefs.New(errdefs.Invalid, "token create: --scope is missing: some of read,exec,manage,apply")}
	}
	var err error
	t.CreatedAt = time.Now().UTC()
	if t.ExpiresAt, err = parseExpiry(o.Expires, t.CreatedAt); err != nil {
		return usageError{err}
	}
	if t.Name == "" {
		t.Name = strings.TrimPrefix(t.OwnerID+"-", "-") + strconv.FormatInt(t.CreatedAt.UnixMilli(), 36)
	}
	if strings.TrimSpace(t.Name) != t.Name || vpath.Escape(t.Name) != t.Name {
		return usageError{errdefs.New(errdefs.Invalid, "--name %s: want a name that can be printed", vpath.Quote(t.Name))}
	}
	return e.withTokens(cmd, o.tokenOptions, func(ctx context.Context, tokens backend.Tokens) error {
		secret, err := tokens.Issue(ctx, t)
		if err != nil {
			return err
		}
		if o.JSON {
			return e.printJSON(struct {
				SchemaVersion int `json:"schema_version"`
				backend.Token
				Secret string `json:"token"`
			}{schemaVersion, t, secret})
		}
		e.say("token %s is shown this once; agentfense token revoke %[1]s ends it", t.Name)
		_, err = fmt.Fprintln(e.stdout, secret)
		return err
	})
}

const day = 24 * time.Hour

// parseExpiry reads a time from now (12h, 30d) or a date, "" for never.
func parseExpiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return at.UTC(), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	in, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		in = time.Duration(n) * day
	}
	if err != nil || in <= 0 {
		return time.Time{}, errdefs.New(errdefs.Invalid, "--expires %s: want a time such as 12h or 30d, or a date such as 2030-01-31", vpath.Quote(text))
	}
	return now.Add(in), nil
}

func newTokenLs(e *env) *cobra.Command {
	var o tokenOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the tokens; the default one of the file is not among them",
		Example: `  agentfense token ls --json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.withTokens(cmd, o, func(ctx context.Context, tokens backend.Tokens) error {
				return e.listTokens(ctx, tokens, asJSON)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	o.register(cmd)
	return cmd
}

func (e *env) listTokens(ctx context.Context, tokens backend.Tokens, asJSON bool) error {
	list, err := tokens.List(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int             `json:"schema_version"`
			Tokens        []backend.Token `json:"tokens"`
		}{schemaVersion, append([]backend.Token{}, list...)})
	}
	var rows [][]string
	for _, t := range list {
		expires := "never"
		switch {
		case t.ExpiresAt.IsZero():
		case t.ExpiresAt.Before(time.Now()):
			expires = "expired"
		default:
			expires = present.LocalTime(t.ExpiresAt)
		}
		owner := vpath.Escape(t.OwnerID)
		if owner == "" {
			owner = "(everybody)"
		}
		rows = append(rows, []string{vpath.Escape(t.Name), owner, t.Scopes, present.LocalTime(t.CreatedAt), expires})
	}
	return printTable(e.stdout, []string{"NAME", "OWNER", "SCOPES", "CREATED", "EXPIRES"}, rows)
}

func newTokenRevoke(e *env) *cobra.Command {
	var o tokenOptions
	cmd := &cobra.Command{
		Use:     "revoke NAME…",
		Short:   "End tokens; a server that runs refuses them from now on",
		Example: `  agentfense token revoke nightly`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.withTokens(cmd, o, func(ctx context.Context, tokens backend.Tokens) error {
				for _, name := range args {
					if err := tokens.Revoke(ctx, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	o.register(cmd)
	return cmd
}

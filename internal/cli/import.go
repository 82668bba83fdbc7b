package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Import is a portable.Import.
type Import struct {
	Digest string // SHA-256 of the file, in hex
	// Notes say what a sandbox with the source cannot take over.
	Notes func(source string) []string
	// Fill writes the changes to the layers of a sandbox that is being made in dir.
	Fill  func(ctx context.Context, home *record.Home, r *record.Record, dir string, partial bool) (ExportResult, error)
	Close func() error
}

type importOptions struct {
	sandboxOptions
	Partial bool
}

func newImport(e *env) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE NAME [flags]",
		Short: "Make a sandbox that begins with the changes in an AgentFS database",
		Long: `Make the sandbox NAME on the current directory or --dir. It begins with the changes in
FILE: an AgentFS 0.4 database (SQLite) that export or a program of AgentFS wrote.

Review the changes with diff and apply them as always. The flags are those of create.
The policy is from the flags, the project's policy file or the default preset, never
from FILE. It must let the sandbox write all changes; --partial leaves out and lists the
others. A file that is damaged or inconsistent is refused. If anything fails, no sandbox
is made. Owners, setuid and setgid bits, devices, the list of tool calls, and the audit log
and the policy of an exported sandbox are not taken over. The key-value store is kept for
the next export.`,
		Example: `  agentfense import fix.db fix
  agentfense import fix.db fix --dir ~/app --preset development
  agentfense diff fix`,
		Args: cobra.ExactArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.onlyHere(func(ctx context.Context, args []string) error { return runImport(ctx, e, cmd, args[0], args[1], o) })(cmd, args)
	}
	o.register(cmd)
	_ = cmd.Flags().MarkHidden("codebase") // of a server, which import does not use
	cmd.Flags().BoolVar(&o.Partial, "partial", false, "leave out, and list, changes that the policy does not let the sandbox make")
	return cmd
}

func runImport(ctx context.Context, e *env, cmd *cobra.Command, file, name string, o importOptions) (err error) {
	if file == "" {
		return usageError{errdefs.New(errdefs.Invalid, "import: FILE is empty")}
	}
	o.Name = name
	home, err := e.openHome()
	if err != nil {
		return err
	}
	b := local.New(home, e.getenv, e.owner)
	env, err := o.addToolchains(ctx, e, cmd, b, nil)
	if err != nil {
		return err
	}
	n, err := o.described(cmd, b, false, env)
	if err != nil {
		return err
	}
	if _, err := b.Sandbox(ctx, name); err == nil {
		return errdefs.New(errdefs.Exists, "sandbox %s: exists already", name)
	}
	p := e.progress("reading")
	in, err := e.parts.Import(ctx, file)
	p.stop()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var result ExportResult
	n.Contributors = []record.Contributor{{Imported: in.Digest}}
	n.Fill = func(home *record.Home, r *record.Record, dir string) (err error) {
		result, err = in.Fill(ctx, home, r, dir, o.Partial)
		return err
	}
	sb, err := o.create(ctx, e, cmd, b, n)
	if err != nil {
		return err
	}
	if err := logImport(home, name, file, in.Digest, &result); err != nil {
		return err
	}
	return e.sayImported(sb, in.Notes(string(sb.Record.Source.Path)), &result)
}

// logImport writes to the audit log where the changes of the new sandbox are from.
func logImport(home *record.Home, name, file, digest string, r *ExportResult) error {
	sb, err := home.Open(name)
	if err != nil {
		return err
	}
	if path, err := filepath.Abs(file); err == nil {
		file = path
	}
	return sb.Log(audit.ChangesImported{
		File: audit.Text(file), SHA256: digest, Changes: int64(r.Entries + r.Deletions), Deletions: int64(r.Deletions), LeftOut: int64(len(r.Skipped)),
	})
}

func (e *env) sayImported(sb backend.Sandbox, notes []string, result *ExportResult) error {
	for _, note := range notes {
		e.say("%s", note)
	}
	for _, s := range result.Skipped {
		e.say("left out: %s: %s", shown(s.Path.Plain()), s.Why)
	}
	e.say("imported %s (%s)", plural(result.Entries+result.Deletions, "change"), plural(result.Deletions, "deletion"))
	e.sayPublished(sb)
	_, err := fmt.Fprintln(e.stdout, sb.Record.Name)
	return err
}

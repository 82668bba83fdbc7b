package cli

import (
	"context"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// ExportResult is a portable.Result.
type ExportResult = backend.ExportResult

// The formats of export.
const (
	FormatAgentFS = "agentfs"
	FormatTar     = "tar"
	FormatOCI     = "oci"
	FormatPatch   = "patch"
)

var exportFormats = []string{FormatAgentFS, FormatTar, FormatOCI, FormatPatch}

type exportFileOptions struct {
	Format string
	In     string
}

func newExport(e *env) *cobra.Command {
	var o exportFileOptions
	cmd := &cobra.Command{
		Use:   "export NAME FILE",
		Short: "Write what a sandbox changed to a file for other programs",
		Long: `Write what a sandbox changed to the new FILE, which only you can read:

  agentfs  an SQLite database that agentfs opens, also with the audit log and the commands
  tar      a tar archive of the files; it cannot hold deletions
  oci      an image with one layer, in the OCI layout, also for docker load
  patch    a patch for git apply; it cannot hold binary files and directories

The file holds what the sandbox wrote and the names of what it deleted. Content that the
policy does not show inside is left out, and so are files that were made under a hidden
name. What is left out is listed. The sandbox may run. FILE appears when it is complete.`,
		Example: `  agentfense export fix fix.db
  agentfense export fix fix.tar --format tar
  agentfense export fix fix.patch --format patch`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = e.eitherWay(func(ctx context.Context, s backend.Export, args []string) error {
		return runExport(ctx, e, s, args[0], args[1], o)
	})
	f := cmd.Flags()
	f.StringVar(&o.Format, "format", FormatAgentFS, "agentfs, tar, oci or patch")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(exportFormats, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.In, "in", "", "export the changes in this `MOUNT`, not those of the workspace")
	cmd.RegisterFlagCompletionFunc("in", e.completeMounts)
	return cmd
}

func runExport(ctx context.Context, e *env, s backend.Export, name, file string, o exportFileOptions) error {
	if !slices.Contains(exportFormats, o.Format) {
		return usageError{errdefs.New(errdefs.Invalid, "--format %s: want %s%s", vpath.Quote(o.Format), strings.Join(exportFormats, ", "), didYouMean(o.Format, exportFormats))}
	}
	switch file {
	case "":
		return usageError{errdefs.New(errdefs.Invalid, "export: FILE is empty")}
	case "-":
		return usageError{errdefs.New(errdefs.Invalid, "export: cannot write to the standard output: give the name of a new file (./- for a file named -)")}
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return errdefs.New(errdefs.Internal, "export: %w", err)
	}
	p := e.progress("exporting")
	result, err := s.Export(ctx, name, o.In, file, o.Format)
	p.stop()
	if err != nil {
		return err
	}
	for _, s := range result.Skipped {
		e.say("left out: %s: %s", shown(s.Path.Plain()), s.Why)
	}
	for _, note := range result.Notes {
		e.say("%s", note)
	}
	if o.Format == FormatTar && result.Deletions > 0 {
		e.say("a tar archive cannot hold deletions: it is without %s", plural(result.Deletions, "deletion"))
		result.Deletions = 0
	}
	e.say("exported %s (%s, %s)", plural(result.Entries+result.Deletions, "change"), plural(result.Deletions, "deletion"), o.Format)
	return nil
}

// exportHere reads the sandboxes of this host.
type exportHere struct{ *env }

// Export implements backend.Export.
func (h exportHere) Export(ctx context.Context, name, mount, file, format string) (ExportResult, error) {
	sb, err := h.readable(ctx, name, mount)
	if err != nil {
		return ExportResult{}, err
	}
	return h.parts.Export(ctx, sb, file, format)
}

// Query implements backend.Export.
func (h exportHere) Query(ctx context.Context, name, statement string, b QueryBounds) (QueryRows, error) {
	sb, err := h.readable(ctx, name, "")
	if err != nil {
		return QueryRows{}, err
	}
	return h.parts.Query(ctx, sb, statement, b)
}

// eitherWay is what a verb runs that reads a sandbox of this host, or of the server that is given.
func (e *env) eitherWay(run func(ctx context.Context, s backend.Export, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		address := e.address()
		if address == "" {
			return e.onlyHere(func(ctx context.Context, args []string) error { return run(ctx, exportHere{e}, args) })(cmd, args)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		return e.onServer(ctx, address, func(ctx context.Context, s backend.Server) error { return run(ctx, s, args) })
	}
}

// onlyHere is what a verb runs that reads the changes of a sandbox of this host. It is of
// agentfense-server.
func (e *env) onlyHere(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := e.hereOnly(cmd.Name()); err != nil {
			return err
		}
		if e.parts == nil {
			return executable.ExecServer()
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		return doneElsewhere(run(ctx, args))
	}
}

// readable opens a sandbox of this host, or its mount, to read its changes. Errors: NotFound;
// *backend.DoneError if another process has done the rest.
func (e *env) readable(ctx context.Context, name, mount string) (*record.Sandbox, error) {
	home, err := e.openHome()
	if err != nil {
		return nil, err
	}
	return local.New(home, e.getenv, e.owner).Readable(ctx, name, mount, e.args)
}

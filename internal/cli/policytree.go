package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

func newPolicyTree(e *env) *cobra.Command {
	var o policySource
	var dir string
	var depth int
	var all bool
	cmd := &cobra.Command{
		Use:   "tree [flags]",
		Short: "Show a directory with the permission of each path",
		Example: `  agentfense policy tree --preset development
  agentfense policy tree --depth 1 --all`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if o.Sandbox != "" {
				if err := e.hereOnly("policy tree --sandbox"); err != nil {
					return err
				}
			}
			if dir == "" {
				var err error
				if dir, err = o.defaultDir(e); err != nil {
					return err
				}
			}
			source, err := realPath(dir)
			if err != nil {
				return fault.New(fault.NotFound, "policy tree: %w", err)
			}
			p, err := o.compile(e, source)
			if err != nil {
				return err
			}
			t := treePrinter{e: e, policy: p, all: all, depth: depth}
			return t.print(source, vpath.Root, 0)
		},
	}
	o.register(cmd, e)
	cmd.Flags().StringVar(&dir, "dir", "", "the directory (default: the source of --sandbox, else the current one)")
	cmd.Flags().IntVar(&depth, "depth", 0, "how many levels to show (0 = all)")
	cmd.Flags().BoolVar(&all, "all", false, "show what is hidden, too")
	return cmd
}

func (o *policySource) defaultDir(e *env) (string, error) {
	if o.Sandbox == "" {
		return ".", nil
	}
	_, sb, err := e.open(o.Sandbox)
	if err != nil {
		return "", err
	}
	return string(sb.Record().Source.Path), nil
}

// treePrinter prints a real directory as a policy shows it.
type treePrinter struct {
	e      *env
	policy *policy.Policy
	all    bool
	depth  int
}

func (t *treePrinter) print(dir string, path vpath.Path, level int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.e.say("%s", oneLine(err))
		return nil // an unreadable directory must not hide the rest
	}
	state := t.policy.At(path)
	for _, entry := range entries {
		d := state.DecideChild(entry.Name())
		permission, name := d.Permission, vpath.Escape(entry.Name())
		if entry.IsDir() {
			permission, name = d.ForDir(), name+"/"
		}
		if permission == policy.None && !t.all {
			continue
		}
		_, err := fmt.Fprintf(t.e.stdout, "%-5s  %s%s\n", permission, strings.Repeat("  ", level), name)
		if err != nil {
			return err
		}
		descend := entry.IsDir() && permission != policy.None && (t.depth == 0 || level+1 < t.depth)
		if !descend {
			continue
		}
		if err := t.print(filepath.Join(dir, entry.Name()), path.Child(entry.Name()), level+1); err != nil {
			return err
		}
	}
	return nil
}

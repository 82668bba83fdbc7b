package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func newPolicyTree(e *env) *cobra.Command {
	var o policySource
	var dir string
	var depth int
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "tree [flags]",
		Short: "Show a directory with the permission of each path",
		Example: `  agentfense policy tree --preset development
  agentfense policy tree --depth 1 --all
  agentfense policy tree --json`,
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
				return errdefs.New(errdefs.NotFound, "policy tree: %w", err)
			}
			p, err := o.compile(e, source)
			if err != nil {
				return err
			}
			t := treePrinter{e: e, out: e.stdout, policy: p, all: all, depth: depth, asJSON: asJSON, entries: []treeEntryJSON{}}
			if err := t.print(source, vpath.Root, 0); err != nil || !asJSON {
				return err
			}
			return e.printJSON(struct {
				SchemaVersion int             `json:"schema_version"`
				Entries       []treeEntryJSON `json:"entries"`
			}{schemaVersion, t.entries})
		},
	}
	o.register(cmd, e)
	cmd.Flags().StringVar(&dir, "dir", "", "the directory (default: the source of --sandbox, else the current one)")
	cmd.Flags().IntVar(&depth, "depth", 0, "how many levels to show (0 = all)")
	cmd.Flags().BoolVar(&all, "all", false, "show what is hidden, too")
	jsonFlag(cmd, &asJSON)
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

// treeEntryJSON is an entry of a tree in a JSON document.
type treeEntryJSON struct {
	Path       string            `json:"path"` // escaped
	Directory  bool              `json:"directory,omitempty"`
	Permission policy.Permission `json:"permission"` // of a directory what it shows
	RuleIndex  int               `json:"rule_index"` // -1: none decides
	Reason     string            `json:"reason"`
	Own        bool              `json:"own,omitempty"`  // hidden by a rule that lets own entries be made
	Keep       bool              `json:"keep,omitempty"` // changes are applied when a command ends
	transformJSON
}

// treePrinter prints a real directory as a policy shows it.
type treePrinter struct {
	e      *env
	out    *os.File
	policy *policy.Policy
	all    bool
	depth  int

	most, rows int  // print at most that many entries (0 = all)
	cut        bool // there are more

	asJSON  bool
	entries []treeEntryJSON // in place of what is printed
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
		if t.most > 0 && t.rows == t.most {
			t.cut = true
			return nil
		}
		t.rows++
		if err := t.line(entry.IsDir(), path.Child(entry.Name()), name, level, permission, d); err != nil {
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

// line prints an entry, or keeps it for the JSON document.
func (t *treePrinter) line(dir bool, path vpath.Path, name string, level int, permission policy.Permission, d policy.Decision) error {
	own, keep, making := t.noteAt(permission, d)
	if !d.Transform.IsZero() && !dir {
		making = " (" + d.Transform.String() + ")"
	}
	if t.asJSON {
		t.entries = append(t.entries, treeEntryJSON{path.String(), dir, permission, d.Rule, d.Reason, own, keep, transformJSONOf(path, d)})
		return nil
	}
	_, err := fmt.Fprintf(t.out, "%s  %s%s%s\n", t.word(permission), strings.Repeat("  ", level), name, making)
	return err
}

// permissionColours are the SGR codes of the permissions.
var permissionColours = map[policy.Permission]string{policy.None: "31", policy.View: "33", policy.Read: "36", policy.Write: "32"}

// word is the permission in a column, coloured on a terminal.
func (t *treePrinter) word(permission policy.Permission) string {
	return t.e.colour(t.out, permissionColours[permission], fmt.Sprintf("%-5s", permission))
}

// noteAt says of a hidden entry whether the rule is own or strict, and of one that may be written
// whether the rule keeps changes.
func (t *treePrinter) noteAt(permission policy.Permission, d policy.Decision) (own, keep bool, text string) {
	switch {
	case d.Rule == policy.NoRule:
		return false, false, ""
	case permission == policy.Write && t.policy.Rule(d.Rule).Keep:
		return false, true, " (kept)"
	case permission != policy.None:
		return false, false, ""
	case t.policy.Rule(d.Rule).Own:
		return true, false, " (own)"
	}
	return false, false, " (strict)"
}

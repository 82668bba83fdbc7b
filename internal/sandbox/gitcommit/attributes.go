package gitcommit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// converting are the attributes by which git writes another content into the work tree than the
// blob has (gitattributes(5)).
var converting = []string{"filter", "ident", "working-tree-encoding", "text", "eol", "crlf"}

// Conversions returns why git would write files of a commit into the work tree with another content
// than the blobs have, by path. The attributes are those of the commit, which StoreAside may have
// stored, and of the user. Line ends count, whether a file has any.
func (r *Repository) Conversions(ctx context.Context, commit string, paths []string) (map[string]string, error) {
	why := map[string]string{}
	if len(paths) == 0 {
		return why, nil
	}
	if _, err := r.run(ctx, inScratch, nil, "read-tree", commit); err != nil {
		return nil, err
	}
	autocrlf, err := r.setting(ctx, "core.autocrlf")
	if err != nil {
		return nil, err
	}
	eol, err := r.setting(ctx, "core.eol")
	if err != nil {
		return nil, err
	}
	list := strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	out, err := r.run(ctx, inScratch, list, append([]string{"check-attr", "-z", "--stdin", "--cached"}, converting...)...)
	if err != nil {
		return nil, err
	}
	of := map[string]map[string]string{}
	fields := strings.Split(out, "\x00")
	for ; len(fields) >= 3; fields = fields[3:] {
		if of[fields[0]] == nil {
			of[fields[0]] = map[string]string{}
		}
		of[fields[0]][fields[1]] = fields[2]
	}
	for path, attributes := range of {
		if reason := conversion(attributes, autocrlf, eol); reason != "" {
			why[path] = reason
		}
	}
	return why, nil
}

// setting returns the value of a setting in lower case, "" if it is not set.
func (r *Repository) setting(ctx context.Context, name string) (string, error) {
	value, err := r.run(ctx, inRepository, nil, "config", "--get", name)
	if errors.Is(err, errNo) {
		return "", nil
	}
	return strings.ToLower(strings.TrimSpace(value)), err
}

// The values of attributes that are not strings.
const (
	attrUnset       = "unset"
	attrUnspecified = "unspecified"
)

func isGiven(value string) bool {
	return value != "" && value != attrUnspecified && value != attrUnset
}

// conversion says by which attribute or setting git converts a file, or "".
func conversion(of map[string]string, autocrlf, eol string) string {
	for _, name := range []string{"filter", "ident", "working-tree-encoding"} {
		if isGiven(of[name]) {
			return fmt.Sprintf("git's attribute %s=%s converts it", name, vpath.Escape(of[name]))
		}
	}
	isText := isGiven(of["text"]) || isGiven(of["crlf"])
	switch {
	case of["text"] == attrUnset || of["text"] == attrUnspecified && of["crlf"] == attrUnset:
		return ""
	case of["eol"] == "crlf":
		return "git's attribute eol=crlf converts its line ends"
	case of["eol"] == "lf" || of["crlf"] == "input":
		return ""
	case isTrue(autocrlf):
		return "git's setting core.autocrlf converts its line ends"
	case isText && autocrlf != "input" && eol == "crlf":
		return "git's setting core.eol=crlf converts its line ends"
	}
	return ""
}

// isTrue reports whether git takes a value for true (git-config(1)).
func isTrue(value string) bool {
	return value == "true" || value == "yes" || value == "on" || strings.Trim(value, "0123456789") == "" && strings.Trim(value, "0") != ""
}

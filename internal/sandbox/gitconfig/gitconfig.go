// Package gitconfig reads a user's git identity from the user's configuration, and writes
// the configuration of git inside a sandbox.
//
// It starts no program. Of a repository it opens only the file .git with the repository's
// place, and only compares its content. It returns only name and address of the user's
// configuration: no credential helper, no alias, no command.
package gitconfig

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// Bounds of what is read: of one file in bytes, and of files that include one
// another, as git has it.
const (
	maxFile  = 1 << 20
	maxDepth = 10
)

// User is a git identity. A field that is not configured is empty.
type User struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
}

// maxValue is the maximum length of a name or an address that a client sends, in bytes.
const maxValue = 1024

// Check checks a name and an address from a client. Errors: Invalid.
func (u User) Check() error {
	for _, v := range []struct{ field, value string }{{"name", u.Name}, {"email", u.Email}} {
		switch {
		case len(v.value) > maxValue:
			return errdefs.New(errdefs.Invalid, "git_user.%s: longer than %d bytes", v.field, maxValue)
		case strings.ContainsFunc(v.value, unicode.IsControl):
			return errdefs.New(errdefs.Invalid, "git_user.%s: has a control character", v.field)
		}
	}
	return nil
}

// Of returns the git identity of the user of the environment getenv in the directory dir,
// from the configuration of the system and the user (git-config(1), "FILES") with included
// files. It does not read the repository's configuration. It ignores a file that it cannot
// read or parse.
func Of(getenv func(string) string, dir string) User {
	r := reader{home: getenv("HOME"), gitDir: gitDirOf(dir)}
	for _, path := range paths(getenv) {
		r.read(path, 0)
	}
	return r.user
}

// systemFile is git's, where it was not built with another.
const systemFile = "/etc/gitconfig"

func paths(getenv func(string) string) []string {
	var list []string
	switch system := getenv("GIT_CONFIG_SYSTEM"); {
	case isTrue(getenv("GIT_CONFIG_NOSYSTEM")):
	case system != "":
		list = append(list, system)
	default:
		list = append(list, systemFile)
	}
	if global := getenv("GIT_CONFIG_GLOBAL"); global != "" {
		return append(list, global)
	}
	home := getenv("HOME")
	if xdg := getenv("XDG_CONFIG_HOME"); xdg != "" {
		list = append(list, filepath.Join(xdg, "git/config"))
	} else if home != "" {
		list = append(list, filepath.Join(home, ".config/git/config"))
	}
	if home != "" {
		list = append(list, filepath.Join(home, ".gitconfig"))
	}
	return list
}

func isTrue(word string) bool {
	switch strings.ToLower(word) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}

type reader struct {
	home   string
	gitDir string // of the directory asked about, "" without one
	user   User
}

func (r *reader) read(path string, depth int) {
	text, err := readFile(path)
	if err != nil || depth > maxDepth {
		return
	}
	all, err := parse(text)
	if err != nil {
		return
	}
	for _, v := range all {
		switch {
		case v.section == "user" && v.sub == "" && v.name == "name":
			r.user.Name = v.value
		case v.section == "user" && v.sub == "" && v.name == "email":
			r.user.Email = v.value
		case r.includes(v, path):
			r.read(r.resolve(v.value, path), depth+1)
		}
	}
}

// includes reports whether v, in the file at path, includes another file.
func (r *reader) includes(v variable, path string) bool {
	if v.name != "path" || v.value == "" {
		return false
	}
	return v.section == "include" && v.sub == "" || v.section == "includeif" && r.applies(v.sub, path)
}

// readFile reads a regular file, also by a link of the user's.
func readFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, os.ErrInvalid)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = os.ErrInvalid
	}
	return string(text), err
}

// resolve returns the path of a file that the one at from includes.
func (r *reader) resolve(path, from string) string {
	switch rest, tilde := strings.CutPrefix(path, "~/"); {
	case tilde:
		return filepath.Join(r.home, rest)
	case filepath.IsAbs(path):
		return path
	}
	return filepath.Join(filepath.Dir(from), path)
}

// applies reports whether the condition of an includeIf in the file at from is true. It
// supports only conditions on the repository's place.
func (r *reader) applies(condition, from string) bool {
	pattern, ok := strings.CutPrefix(condition, "gitdir:")
	gitDir := r.gitDir
	if !ok {
		if pattern, ok = strings.CutPrefix(condition, "gitdir/i:"); ok {
			pattern, gitDir = strings.ToLower(pattern), strings.ToLower(gitDir)
		}
	}
	if !ok || gitDir == "" {
		return false
	}
	switch {
	case strings.HasPrefix(pattern, "~/"), strings.HasPrefix(pattern, "./"):
		end := ""
		if strings.HasSuffix(pattern, "/") {
			end = "/"
		}
		pattern = r.resolve(pattern, from) + end
	case !filepath.IsAbs(pattern):
		pattern = "**/" + pattern
	}
	// As in a .gitignore, which has git's own patterns: what ends with a slash is a
	// directory with all below.
	m, err := ignore.New(pattern)
	if err != nil {
		return false
	}
	path, err := vpath.Parse(gitDir)
	return err == nil && m.Excludes(path, true)
}

// gitDirOf returns the git directory of the work tree that contains dir, or "".
func gitDirOf(dir string) string {
	for {
		path := filepath.Join(dir, ".git")
		info, err := os.Lstat(path)
		switch {
		case err == nil && info.IsDir():
			return path
		case err == nil:
			text, _ := readFile(path)
			if target, ok := strings.CutPrefix(strings.TrimRight(text, "\n"), "gitdir: "); ok {
				if !filepath.IsAbs(target) {
					target = filepath.Join(dir, target)
				}
				return target
			}
			return ""
		case dir == "/" || dir == ".":
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// Inside is the system's configuration of git inside a sandbox.
type Inside struct {
	User User
	// Safe are directories whose owner does not matter; "*" is all.
	Safe []string
}

// Encode returns the content of the file. Inside, files show another owner than in an index
// that git wrote outside, and git would read every file again. Therefore it sets
// core.checkStat, with which git ignores owners and inode numbers.
func (c Inside) Encode() []byte {
	var b strings.Builder
	b.WriteString("[core]\n\tcheckStat = minimal\n")
	if c.User != (User{}) {
		b.WriteString("[user]\n")
		assign(&b, "name", c.User.Name)
		assign(&b, "email", c.User.Email)
	}
	if len(c.Safe) > 0 {
		b.WriteString("[safe]\n")
		for _, dir := range c.Safe {
			assign(&b, "directory", dir)
		}
	}
	return []byte(b.String())
}

var quoteValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`)

func assign(b *strings.Builder, name, value string) {
	if value != "" && !strings.ContainsRune(value, 0) {
		b.WriteString("\t" + name + ` = "` + quoteValue.Replace(value) + "\"\n")
	}
}

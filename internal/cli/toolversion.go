package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// maxVersionFile bounds what is read to find a version, in bytes.
const maxVersionFile = 64 << 10

// shims is a program that runs another version of a tool by where it is called: its
// name in a directory of such programs tells no version, and files do.
type shims struct {
	dir      string // below the home, of managerDirs
	programs string // below dir: where the shims are
	variable string // tells it where dir is, "" if the shims have that written in them
	versions []versionFile
	// versionVariable tells it the version of a tool, with %s for the tool's name in capital
	// letters. It is for versions of files that are not in dir, "" if there are none.
	versionVariable string
}

// versionFile is a file that says which version of a tool is meant.
type versionFile struct {
	name   string
	inHome bool // else in the source
	read   func(content, tool string) string
}

// managersWithShims are as their documentation has them.
var managersWithShims = []shims{
	{".volta", "bin", "VOLTA_HOME", []versionFile{{"package.json", false, voltaPin}, {".volta/tools/user/platform.json", true, voltaPlatform}}, ""},
	{".asdf", "shims", "ASDF_DATA_DIR", []versionFile{{".tool-versions", false, toolVersions}, {".tool-versions", true, toolVersions}}, "ASDF_%s_VERSION"},
	{".local/share/mise", "shims", "MISE_DATA_DIR", []versionFile{
		{"mise.toml", false, miseTools},
		{".mise.toml", false, miseTools},
		{".tool-versions", false, toolVersions},
		{".config/mise/config.toml", true, miseTools},
	}, "MISE_%s_VERSION"},
	{".pyenv", "shims", "", []versionFile{{".python-version", false, firstLine}, {".pyenv/version", true, firstLine}}, ""},
	{".rbenv", "shims", "", []versionFile{{".ruby-version", false, firstLine}, {".rbenv/version", true, firstLine}}, ""},
	{".nodenv", "shims", "", []versionFile{{".node-version", false, firstLine}, {".nodenv/version", true, firstLine}}, ""},
	{".goenv", "shims", "", []versionFile{{".go-version", false, firstLine}, {".goenv/version", true, firstLine}}, ""},
}

// shimsOf returns the manager of which a program is a shim, nil if it is none.
func (in *inside) shimsOf(program string) *shims {
	i := slices.IndexFunc(managersWithShims, func(s shims) bool {
		return filepath.Dir(program) == filepath.Join(in.managerDir(s.dir), s.programs)
	})
	if i < 0 {
		return nil
	}
	return &managersWithShims[i]
}

// versioned is the path of a program, with its version if that can be told without
// running it.
func (in *inside) versioned(program string) string {
	if version := in.versionOf(program); version != "" {
		return program + " (" + version + ")"
	}
	return program
}

func (in *inside) versionOf(program string) string {
	if s := in.shimsOf(program); s != nil {
		version, _ := in.shimVersion(s, filepath.Base(program))
		return version
	}
	return versionInPath(program)
}

// inName finds the version in the name of a program or of a toolchain's directory:
// python3.12, v20.1.0, cpython-3.12.1-linux.
var inName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[a-zA-Z][a-zA-Z_+]*[-@]?)?v?(\d+\.\d+(?:\.\d+)*)(?:$|[-+a-z])`)
})

// versionInPath finds the version in the names by which a program is reached: its
// own, and those of the two directories that hold its bin.
func versionInPath(program string) string {
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return ""
	}
	names := []string{filepath.Base(real)}
	if bin := filepath.Dir(real); filepath.Base(bin) == "bin" {
		tree := filepath.Dir(bin)
		names = append(names, filepath.Base(tree), filepath.Base(filepath.Dir(tree)))
	}
	for _, name := range names {
		if m := inName().FindStringSubmatch(name); m != nil {
			return m[1]
		}
	}
	return ""
}

// isVersion is what is believed of a file.
var isVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^v?\d[\w.+-]{0,40}$`) })

// shimVersion returns the version of a tool, and whether a file in the home directory says
// it.
func (in *inside) shimVersion(s *shims, tool string) (version string, inHome bool) {
	for _, f := range s.versions {
		root := string(in.record.Source.Path)
		if f.inHome {
			root = in.home
		}
		content, err := safefs.ReadRegularIn(root, f.name, maxVersionFile)
		if err != nil {
			continue // most are not there
		}
		if version := f.read(string(content), tool); isVersion().MatchString(version) {
			return strings.TrimPrefix(version, "v"), f.inHome
		}
	}
	return "", false
}

// variablesOf are the variables that a shim needs inside, where the home directory is
// another: NAME=VALUE.
func (in *inside) variablesOf(program string) []string {
	s := in.shimsOf(program)
	if s == nil {
		return nil
	}
	var variables []string
	if s.variable != "" {
		variables = append(variables, s.variable+"="+in.managerDir(s.dir))
	}
	tool := filepath.Base(program)
	version, inHome := in.shimVersion(s, tool)
	if s.versionVariable == "" || !inHome {
		return variables
	}
	for _, name := range namesOfTool(tool) {
		if has(filepath.Join(in.managerDir(s.dir), "installs"), name) {
			variables = append(variables, fmt.Sprintf(s.versionVariable, strings.ToUpper(name))+"="+version)
		}
	}
	return variables
}

func firstLine(content, _ string) string {
	line, _, _ := strings.Cut(content, "\n")
	return strings.TrimSpace(line)
}

// namesOfTool are the names by which managers know a program's tool.
func namesOfTool(program string) []string {
	switch program {
	case "node", "npm", "npx":
		return []string{"nodejs", "node"}
	case "python3":
		return []string{"python"}
	case "go", "gofmt":
		return []string{"golang", "go"}
	case "cargo", "rustc":
		return []string{"rust"}
	}
	return []string{program}
}

// toolVersions reads a .tool-versions: a tool and its versions a line.
func toolVersions(content, tool string) string {
	for line := range strings.Lines(content) {
		if fields := strings.Fields(line); len(fields) > 1 && slices.Contains(namesOfTool(tool), fields[0]) {
			return fields[1]
		}
	}
	return ""
}

var miseTool = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^"?([\w-]+)"?\s*=\s*"([^"]*)"`) })

// miseTools reads the table [tools] of a mise.toml, as far as it has a version as text.
func miseTools(content, tool string) string {
	isTools := false
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			isTools = line == "[tools]"
		}
		if m := miseTool().FindStringSubmatch(line); isTools && m != nil && slices.Contains(namesOfTool(tool), m[1]) {
			return m[2]
		}
	}
	return ""
}

// voltaPin reads what a package.json pins.
func voltaPin(content, tool string) string {
	var manifest struct {
		Volta map[string]any `json:"volta"`
	}
	if json.Unmarshal([]byte(content), &manifest) != nil {
		return ""
	}
	version, _ := manifest.Volta[tool].(string)
	return version
}

// voltaPlatform reads the user's default versions.
func voltaPlatform(content, tool string) string {
	var platform struct {
		Node struct {
			Runtime string `json:"runtime"`
		} `json:"node"`
	}
	if tool != "node" || json.Unmarshal([]byte(content), &platform) != nil {
		return ""
	}
	return platform.Node.Runtime
}

package agentfense_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/agentfense/agentfense/"

// mayImport is the architecture: a package and the packages of internal/ that
// its code may import. Arrows go from faces to meaning to mechanisms to
// memory; mechanisms do not know one another, fusefs excepted.
var mayImport = map[string]string{
	// vocabulary, no I/O
	"internal/fault":      "",
	"internal/crash":      "",
	"internal/bundle":     "fault",
	"internal/vpath":      "fault",
	"internal/statedir":   "fault",
	"internal/ident":      "fault vpath",
	"internal/apilevel":   "",
	"internal/yamlfile":   "fault vpath",
	"internal/policy":     "fault vpath yamlfile",
	"internal/risk":       "fault vpath policy",
	"internal/textdiff":   "fault vpath",
	"internal/secretscan": "fault hostfile policy vpath",
	"internal/gitindex":   "fault",
	"internal/ignore":     "fault vpath",
	"internal/config":     "fault hostfile vpath policy yamlfile",
	// a directory of this host, for who uploads it
	"internal/tree": "fault ignore statedir vpath",
	// files of the host, for those who do I/O
	"internal/hostfile":  "fault",
	"internal/gitconfig": "fault ignore vpath",
	// git's history, asked of git
	"internal/githistory": "fault hostfile",
	// mechanisms
	"internal/connlimit":        "fault",
	"internal/layer":            "fault hostfile vpath",
	"internal/fuseconn":         "",
	"internal/fusefs":           "fault vpath policy layer audit fuseconn",
	"internal/cgroup":           "fault bundle",
	"internal/seccomp":          "fault",
	"internal/guest":            "fault",
	"internal/shell":            "fault",
	"internal/isolate":          "fault hostfile",
	"internal/isolate/bwrap":    "fault isolate seccomp",
	"internal/isolate/docker":   "fault isolate isolate/handover seccomp",
	"internal/isolate/handover": "fault",
	// memory
	"internal/audit":    "fault vpath",
	"internal/outlog":   "fault",
	"internal/codebase": "crash fault ident hostfile ignore vpath",
	"internal/store":    "fault ident hostfile vpath",
	// meaning
	"internal/sandbox":   "config crash fault gitconfig githistory gitindex ident hostfile ignore vpath policy risk textdiff layer audit statedir",
	"internal/auth":      "fault ident hostfile vpath config store",
	"internal/supervise": "bundle crash fault gitconfig hostfile vpath policy layer fusefs cgroup guest isolate isolate/bwrap isolate/docker shell audit outlog sandbox",
	"internal/service":   "apilevel crash fault gitconfig ident vpath policy config audit outlog codebase store auth sandbox supervise api/sandbox/v1",
	// the server's interface; what it says is generated
	"api":            "",
	"api/sandbox/v1": "",
	// faces
	"internal/gateway":       "api api/sandbox/v1",
	"internal/daemon":        "fault config connlimit codebase store auth sandbox supervise service gateway control",
	"internal/control":       "fault gitconfig tree vpath policy config audit outlog sandbox",
	"internal/endpoint":      "fault vpath",
	"internal/endpoint/dial": "apilevel fault endpoint hostfile",
	"internal/carry":         "fault tree vpath api/sandbox/v1",
	"internal/remote":        "fault ident tree vpath policy config textdiff audit outlog sandbox control carry endpoint endpoint/dial api/sandbox/v1",
	"internal/cli":           "fault gitconfig hostfile statedir tree vpath policy secretscan config cgroup guest isolate isolate/bwrap isolate/docker audit outlog sandbox supervise bundle control endpoint",
	"cmd/agentfense":         "bundle cli guest isolate/handover supervise",
	"cmd/agentfense/server":  "bundle cli control daemon endpoint remote",
	// what programs import
	"client": "fault hostfile statedir tree vpath policy carry endpoint endpoint/dial api/sandbox/v1",
	// for tests, and apart from the product
	"internal/dialogue":            "",
	"internal/needs":               "",
	"internal/seccomp/denylist":    "fault seccomp",
	"internal/seccomp/gen":         "seccomp/denylist",
	"internal/isolate/isolatetest": "fault guest isolate isolate/handover needs",
	"internal/bundle/join":         "bundle",
	"api/reference":                "",
	"bench":                        "bench/host bench/serve",
	"bench/host":                   "",
	"bench/serve":                  "bench/host api/sandbox/v1 client",
}

// forTests are imported by tests, and by what lies below test/, alone; they
// import testing.
var forTests = []string{"internal/dialogue", "internal/needs", "internal/isolate/isolatetest"}

// rooms says which packages may import a module that is not ours. A module
// missing here has not been decided upon. Where only tests need it, no package
// is named.
var rooms = map[string]string{
	"github.com/aymanbagabas/go-udiff":          "internal/textdiff",
	"github.com/bmatcuk/doublestar/v4":          "",
	"github.com/creack/pty":                     "internal/cli internal/guest internal/supervise",
	"github.com/elastic/go-seccomp-bpf":         "internal/seccomp/denylist",
	"github.com/google/go-cmp":                  "",
	"github.com/google/jsonschema-go":           "",
	"github.com/grpc-ecosystem/grpc-gateway/v2": "api/sandbox/v1 internal/gateway",
	"github.com/hanwen/go-fuse/v2":              "internal/fuseconn internal/fusefs",
	"github.com/prometheus/client_golang":       "internal/gateway",
	"github.com/rogpeppe/go-internal":           "",
	"github.com/spf13/cobra":                    "internal/cli",
	"github.com/spf13/pflag":                    "internal/cli",
	"go.uber.org/goleak":                        "",
	"go.yaml.in/yaml/v3":                        "internal/config internal/policy internal/yamlfile",
	"golang.org/x/net":                          "internal/seccomp/denylist",
	"golang.org/x/sync":                         "*",
	"golang.org/x/sys":                          "*",
	"golang.org/x/term":                         "bench internal/cli",
	"google.golang.org/genproto/googleapis/api": "api/reference api/sandbox/v1",
	"google.golang.org/genproto/googleapis/rpc": "client internal/carry internal/gateway internal/service",
	"google.golang.org/grpc":                    "api/sandbox/v1 bench/serve client internal/carry internal/daemon internal/endpoint/dial internal/gateway internal/remote internal/service",
	"google.golang.org/protobuf":                "api/reference api/sandbox/v1 bench/serve client internal/apilevel internal/endpoint/dial internal/gateway internal/remote internal/service",
	"modernc.org/sqlite":                        "internal/store",
	"pgregory.net/rapid":                        "",
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	for _, f := range goFiles(t) {
		dir := filepath.Dir(f.path)
		allowed, known := mayImport[dir]
		switch {
		case f.isTest():
			continue
		case !known:
			t.Errorf("%s: package %s has no line in mayImport", f.path, dir)
			continue
		}
		for _, imported := range f.ownImports() {
			if slices.Contains(forTests, imported) && !slices.Contains(forTests, dir) {
				t.Errorf("%s imports %s, which is for tests", f.path, imported)
			} else if !slices.Contains(strings.Fields(allowed), strings.TrimPrefix(imported, "internal/")) {
				t.Errorf("%s imports %s; %s may import: %s", f.path, imported, dir, allowed)
			}
		}
	}
}

func TestModulesStayInTheirRooms(t *testing.T) {
	names := slices.Collect(maps.Keys(rooms))
	for _, f := range goFiles(t) {
		dir := filepath.Dir(f.path)
		exempt := f.isTest() || slices.Contains(forTests, dir)
		for _, imported := range f.imports {
			if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") || strings.HasPrefix(imported+"/", module) {
				continue
			}
			i := slices.IndexFunc(names, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") })
			if i < 0 {
				t.Errorf("%s imports %s, which has no line in rooms", f.path, imported)
				continue
			}
			room := rooms[names[i]]
			if !exempt && room != "*" && !slices.Contains(strings.Fields(room), dir) {
				t.Errorf("%s imports %s; only these packages may: %s", f.path, imported, room)
			}
		}
	}
}

// heavy are modules that cost memory or time where they are only linked.
var heavy = []string{
	"github.com/grpc-ecosystem", "github.com/moby", "github.com/prometheus",
	"google.golang.org", "modernc.org",
}

// A supervisor and a guest exist once per sandbox.
func TestSupervisorAndGuestStayLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/agentfense").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		own := strings.HasPrefix(dep, module+"api") || strings.HasPrefix(dep, module+"internal/store")
		if own || slices.ContainsFunc(heavy, func(m string) bool { return strings.HasPrefix(dep, m+"/") }) {
			t.Errorf("cmd/agentfense, which runs for each sandbox, is linked with %s", dep)
		}
	}
}

// goFile is a Go file of this repository, path relative to its root.
type goFile struct {
	path    string
	text    string
	imports []string
}

// isTest reports whether f is a test or lies below test/.
func (f goFile) isTest() bool {
	return strings.HasSuffix(f.path, "_test.go") || strings.HasPrefix(f.path, "test/")
}

var generatedMark = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`) // go help generate

// isGenerated reports whether a program wrote f.
func (f goFile) isGenerated() bool { return generatedMark.MatchString(f.text) }

// ownImports are the imports of packages of this module, relative to its root.
func (f goFile) ownImports() []string {
	var own []string
	for _, p := range f.imports {
		if rest, ok := strings.CutPrefix(p, module); ok {
			own = append(own, rest)
		}
	}
	return own
}

func goFiles(t *testing.T) []goFile {
	t.Helper()
	var found []goFile
	for _, path := range files(t, ".go") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		f := goFile{path: path, text: string(text)}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			f.imports = append(f.imports, imported)
		}
		found = append(found, f)
	}
	return found
}

// files lists the repository's files whose names end in one of the suffixes.
func files(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "testdata"}, entry.Name()) {
			return filepath.SkipDir
		}
		if entry.Type().IsRegular() && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(path, s) }) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

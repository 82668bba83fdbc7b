package agentfense_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/agentfense/agentfense/"

// wing is a part of the tree, and the wings that its packages may import.
type wing struct{ name, mayImport string }

// wings are the architecture, from the top down.
var wings = []wing{
	{"cmd", "cli server sandbox confine lib"},
	{"client", "cli sandbox view transfer api lib"},
	{"cli", "server sandbox view confine transfer api lib"},
	{"server", "sandbox view transfer api lib"},
	{"sandbox", "view confine transfer lib"},
	{"view", "lib"},
	{"confine", "lib"},
	{"transfer", "api lib"},
	{"api", ""},
	{"lib", ""},
	{"bench", "client api"},
}

// inside says which packages of the same wing a package may import. Keys are relative to
// internal/, values to the wing.
var inside = map[string]string{
	// cmd
	"cmd/agentfense":        "",
	"cmd/agentfense-server": "",
	// client
	"client": "",
	// cli
	"cli":                     "backend local pick present",
	"cli/backend":             "",
	"cli/backend/backendtest": "backend",
	"cli/local":               "backend",
	"cli/pick":                "present",
	"cli/mcpserver":           "backend present",
	"cli/present":             "",
	"cli/remote":              "backend",
	"cli/sharegen":            "cli",
	"cli/reviewui":            "backend present",
	"cli/tokenstore":          "backend",
	// server
	"server/auditfeed": "",
	"server/auth":      "store",
	"server/codebase":  "",
	"server/connlimit": "",
	"server/daemon":    "auditfeed auth codebase connlimit gateway service store",
	"server/gateway":   "",
	"server/service":   "auth codebase store wireconv",
	"server/store":     "",
	"server/wireconv":  "",
	// sandbox
	"sandbox/apply":                 "audit changes conflict gitindex history manifest record review review/acting review/hunk review/keeping rights uploaded",
	"sandbox/attest":                "apply audit contributor gitcommit hostlist manifest record",
	"sandbox/audit":                 "",
	"sandbox/audit/export":          "audit",
	"sandbox/audit/ocsf":            "audit",
	"sandbox/board":                 "record",
	"sandbox/branch":                "apply attest audit changes checkout cleangit gitcommit gitconfig gitindex history manifest record review rights risk transplant",
	"sandbox/changes":               "audit gitindex record rights",
	"sandbox/conflict":              "",
	"sandbox/contributor":           "audit hostlist mountspec",
	"sandbox/config":                "audit/export hostlist mountspec",
	"sandbox/checkout":              "changes gitcommit githistory gitindex history record",
	"sandbox/cleangit":              "githistory gitindex gitrun",
	"sandbox/gitcommit":             "",
	"sandbox/gitconfig":             "",
	"sandbox/granted":               "",
	"sandbox/githistory":            "",
	"sandbox/gitignored":            "gitindex",
	"sandbox/gitindex":              "",
	"sandbox/gitview":               "changes githistory gitindex record",
	"sandbox/history":               "changes githistory gitindex record",
	"sandbox/hostlist":              "audit",
	"sandbox/keep":                  "apply changes conflict manifest record review rights",
	"sandbox/learn":                 "",
	"sandbox/limit":                 "",
	"sandbox/manifest":              "changes record rights",
	"sandbox/outlog":                "",
	"sandbox/login":                 "",
	"sandbox/profile":               "hostlist learn login mountspec",
	"sandbox/portable":              "audit changes portable/query record review review/gitpatch",
	"sandbox/portable/query":        "",
	"sandbox/published":             "",
	"sandbox/readview":              "changes mounted record rights",
	"sandbox/mounted":               "mountspec record",
	"sandbox/mountspec":             "",
	"sandbox/review":                "changes cleangit githistory gitindex manifest record review/gitignored review/keeping risk",
	"sandbox/record":                "audit cleangit config contributor gitconfig granted hostlist limit mountspec published scratch",
	"sandbox/review/acting":         "record review risk",
	"sandbox/review/between":        "changes manifest record review snapshot",
	"sandbox/review/gitpatch":       "record review",
	"sandbox/review/hunk":           "changes manifest record review review/keeping rights",
	"sandbox/review/held":           "record review rights",
	"sandbox/review/keeping":        "changes record rights",
	"sandbox/rights":                "",
	"sandbox/risk":                  "",
	"sandbox/scratch":               "",
	"sandbox/secrets":               "hostlist record supervise/api",
	"sandbox/snapshot":              "audit record",
	"sandbox/snapshot/freeze":       "record snapshot supervise/api",
	"sandbox/supervise":             "audit board changes cleangit contributor gitconfig gitview granted hostlist mounted mountspec outlog record scratch secrets snapshot supervise/api supervise/asking supervise/boardsocket supervise/effects supervise/launch supervise/narrow supervise/notes supervise/overlay",
	"sandbox/supervise/api":         "board changes",
	"sandbox/supervise/asking":      "audit supervise/api",
	"sandbox/supervise/effects":     "audit supervise/api",
	"sandbox/supervise/launch":      "record secrets supervise/api",
	"sandbox/supervise/narrow":      "supervise/worker",
	"sandbox/supervise/notes":       "",
	"sandbox/trust":                 "record",
	"sandbox/merge":                 "audit changes conflict manifest record rights scratch snapshot",
	"sandbox/undo":                  "apply audit changes cleangit gitcommit history record snapshot",
	"sandbox/uploaded":              "gitindex manifest record",
	"sandbox/userrules":             "hostlist record",
	"sandbox/supervise/overlay":     "cleangit scratch supervise/worker",
	"sandbox/supervise/worker":      "supervise/api",
	"sandbox/supervise/boardsocket": "board supervise/api",
	"sandbox/gitrun":                "",
	"sandbox/gitrun/gittest":        "",
	"sandbox/transplant":            "cleangit gitrun",
	"sandbox/review/gitignored":     "changes gitindex",
	// view
	"view/fuseconn":          "",
	"view/fusefs":            "fuseconn layer policy shown uses",
	"view/layer":             "layer/journal layer/nameenc",
	"view/layer/journal":     "",
	"view/layer/nameenc":     "",
	"view/policy":            "policy/glob policy/secretname",
	"view/policy/advise":     "policy",
	"view/policy/glob":       "",
	"view/policy/policyfile": "policy policy/preset",
	"view/policy/preset":     "policy policy/secretname",
	"view/policy/prove":      "policy policy/glob",
	"view/policy/secretname": "",
	"view/redact":            "",
	"view/secretscan":        "policy policy/secretname",
	"view/shown":             "layer policy redact",
	"view/uses":              "",
	// confine
	"confine/cgroup":              "",
	"confine/egress":              "egress/address egress/allowlist egress/authority egress/denial egress/dns egress/forwardproxy egress/idle egress/netns egress/publish egress/question egress/quota egress/refused egress/secret egress/secretproxy egress/sniff egress/webproxy landlock seccomp",
	"confine/egress/address":      "egress/allowlist",
	"confine/egress/allowlist":    "",
	"confine/egress/authority":    "egress/allowlist",
	"confine/egress/denial":       "",
	"confine/egress/dns":          "egress/allowlist",
	"confine/egress/forwardproxy": "",
	"confine/egress/idle":         "",
	"confine/egress/netns":        "",
	"confine/egress/publish":      "",
	"confine/egress/question":     "egress/allowlist egress/quota",
	"confine/egress/quota":        "",
	"confine/egress/refused":      "egress/denial",
	"confine/egress/secret":       "egress/allowlist egress/quota",
	"confine/egress/secretproxy":  "egress/allowlist egress/secret egress/webproxy",
	"confine/egress/sniff":        "",
	"confine/egress/webproxy":     "egress/allowlist egress/sniff",
	"confine/guest":               "landlock seccomp",
	"confine/inner":               "isolate",
	"confine/inner/shim":          "inner isolate",
	"confine/isolate":             "",
	"confine/isolate/bwrap":       "isolate seccomp",
	"confine/isolate/docker":      "isolate isolate/fdpass seccomp",
	"confine/isolate/fdpass":      "",
	"confine/isolate/isolatetest": "guest isolate isolate/fdpass",
	"confine/landlock":            "",
	"confine/seccomp":             "",
	"confine/seccomp/denylist":    "seccomp",
	"confine/seccomp/gen":         "seccomp/denylist",
	"confine/shell":               "",
	// transfer
	"transfer/ignore": "",
	"transfer/scan":   "ignore",
	"transfer/stream": "scan",
	"transfer/viewfs": "",
	// api
	"api":            "",
	"api/reference":  "",
	"api/sandbox/v1": "",
	// lib
	"lib/accept":               "",
	"lib/apiversion":           "",
	"lib/endpoint":             "errdefs vpath",
	"lib/endpoint/dial":        "apiversion endpoint errdefs safefs",
	"lib/endpoint/localserver": "endpoint errdefs",
	"lib/errdefs":              "",
	"lib/executable":           "errdefs",
	"lib/failpoint":            "",
	"lib/fdmessage":            "errdefs",
	"lib/hostpath":             "vpath",
	"lib/id":                   "errdefs vpath",
	"lib/jsonkeys":             "errdefs vpath",
	"lib/linetest":             "",
	"lib/merge3":               "textdiff",
	"lib/nearest":              "errdefs vpath",
	"lib/ownport":              "",
	"lib/pidfd":                "pollfd",
	"lib/pollfd":               "",
	"lib/safefs":               "errdefs vpath",
	"lib/schematest":           "",
	"lib/statedir":             "errdefs",
	"lib/testenv":              "",
	"lib/parallel":             "",
	"lib/textdiff":             "errdefs",
	"lib/thread":               "",
	"lib/vpath":                "errdefs",
	"lib/yamlfile":             "errdefs nearest vpath",
	// bench
	"bench":        "egress host serve",
	"bench/egress": "host",
	"bench/host":   "",
	"bench/serve":  "host",
}

// knowBoth are the packages that may import the wings view and confine, which do
// not know each other: one sandbox's process, and verbs that look at this host.
var knowBoth = []string{"internal/sandbox/supervise", "internal/cli"}

// forTests are imported by tests, and by what lies below test/, alone; they
// import testing.
var forTests = []string{"internal/cli/backend/backendtest", "internal/lib/linetest", "internal/lib/schematest", "internal/lib/testenv", "internal/confine/isolate/isolatetest", "internal/sandbox/gitrun/gittest"}

// rooms says which packages may import a module that is not ours. A module
// missing here has not been decided upon. Where only tests need it, no package
// is named.
var rooms = map[string]string{
	"charm.land/bubbletea/v2":                   "internal/cli/reviewui",
	"github.com/alecthomas/chroma/v2":           "internal/cli/reviewui",
	"github.com/aymanbagabas/go-udiff":          "internal/lib/textdiff",
	"github.com/bmatcuk/doublestar/v4":          "",
	"github.com/charmbracelet/x/ansi":           "internal/cli/reviewui",
	"github.com/creack/pty":                     "internal/cli internal/confine/guest internal/sandbox/supervise",
	"github.com/elastic/go-seccomp-bpf":         "internal/confine/seccomp/denylist",
	"github.com/google/go-cmp":                  "internal/lib/schematest",
	"github.com/google/jsonschema-go":           "internal/lib/schematest",
	"github.com/grpc-ecosystem/grpc-gateway/v2": "api/sandbox/v1 internal/server/gateway",
	"github.com/hanwen/go-fuse/v2":              "bench internal/view/fuseconn internal/view/fusefs",
	"github.com/prometheus/client_golang":       "internal/server/gateway",
	"github.com/rogpeppe/go-internal":           "",
	"github.com/modelcontextprotocol/go-sdk":    "internal/cli/mcpserver",
	"github.com/pelletier/go-toml/v2":           "internal/view/redact",
	"github.com/spf13/cobra":                    "internal/cli internal/cli/sharegen",
	"github.com/spf13/pflag":                    "internal/cli internal/cli/sharegen",
	"go.uber.org/goleak":                        "",
	"go.yaml.in/yaml/v3":                        "internal/sandbox/config internal/sandbox/profile internal/sandbox/userrules internal/view/policy/policyfile internal/view/redact internal/lib/schematest internal/lib/yamlfile",
	"golang.org/x/net":                          "internal/confine/egress internal/confine/egress/allowlist internal/confine/egress/dns internal/confine/egress/forwardproxy internal/confine/egress/refused internal/confine/egress/webproxy internal/confine/seccomp/denylist",
	"golang.org/x/sync":                         "*",
	"golang.org/x/sys":                          "*",
	"golang.org/x/term":                         "bench internal/cli",
	"google.golang.org/genproto/googleapis/api": "api/reference api/sandbox/v1",
	"google.golang.org/genproto/googleapis/rpc": "client internal/transfer/stream internal/server/gateway internal/server/service",
	"google.golang.org/grpc":                    "api/sandbox/v1 bench/serve client internal/transfer/stream internal/server/daemon internal/lib/endpoint/dial internal/server/gateway internal/cli/remote internal/server/service",
	"google.golang.org/protobuf":                "api/reference api/sandbox/v1 bench/serve client internal/lib/apiversion internal/lib/endpoint/dial internal/server/gateway internal/cli/remote internal/server/service internal/server/wireconv",
	"modernc.org/sqlite":                        "internal/sandbox/portable internal/sandbox/portable/query internal/server/store",
	"pgregory.net/rapid":                        "",
}

// wingOf names the wing of the package in dir: its first directory, below internal/.
func wingOf(dir string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(dir, "internal/"), "/")
	return name
}

// imports lists, for each package that is not a test, the packages of this
// module that it imports, both as directories.
func imports(t *testing.T) map[string][]string {
	all := map[string][]string{}
	for _, f := range goFiles(t) {
		if f.isTest() {
			continue
		}
		dir := filepath.Dir(f.path)
		all[dir] = append(all[dir], f.ownImports()...)
	}
	return all
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	used := map[string]map[string]bool{} // by wing, or by package
	use := func(from, to string) {
		if used[from] == nil {
			used[from] = map[string]bool{}
		}
		used[from][to] = true
	}
	may := map[string]string{}
	for _, w := range wings {
		may[w.name] = w.mayImport
	}
	for dir, imported := range imports(t) {
		name := strings.TrimPrefix(dir, "internal/")
		allowed, known := inside[name]
		if !known {
			t.Errorf("package %s has no line in inside", dir)
			continue
		}
		for _, to := range imported {
			switch {
			case slices.Contains(forTests, to) && !slices.Contains(forTests, dir):
				t.Errorf("%s imports %s, which is for tests", dir, to)
			case wingOf(to) != wingOf(dir):
				use(wingOf(dir), wingOf(to))
				if !slices.Contains(strings.Fields(may[wingOf(dir)]), wingOf(to)) {
					t.Errorf("%s imports %s; the wing %s may import: %s", dir, to, wingOf(dir), may[wingOf(dir)])
				}
			default:
				short := strings.TrimPrefix(strings.TrimPrefix(to, "internal/"), wingOf(to)+"/")
				use(name, short)
				if !slices.Contains(strings.Fields(allowed), short) {
					t.Errorf("%s imports %s; in its wing it may import: %s", dir, to, allowed)
				}
			}
		}
	}
	checkUse := func(from, allowed string) {
		for to := range strings.FieldsSeq(allowed) {
			if !used[from][to] {
				t.Errorf("%s may import %s, and nothing in it does: remove that", from, to)
			}
		}
	}
	for _, w := range wings {
		checkUse(w.name, w.mayImport)
	}
	for name, allowed := range inside {
		checkUse(name, allowed)
	}
}

func TestViewAndConfineMeetInOnePlace(t *testing.T) {
	for dir, imported := range imports(t) {
		of := func(wing string) bool {
			return slices.ContainsFunc(imported, func(to string) bool { return wingOf(to) == wing })
		}
		if both, may := of("view") && of("confine"), slices.Contains(knowBoth, dir); both != may {
			t.Errorf("%s: imports view and confine: %t; listed in knowBoth: %t", dir, both, may)
		}
	}
}

// The picture in docs/architecture.md has an arrow for each wing that another
// one may import, and names each package.
func TestArchitectureIsDrawnAsItIs(t *testing.T) {
	const page = "docs/architecture.md"
	text := read(t, page)
	var drawn, want []string
	for _, m := range regexp.MustCompile(`(?m)^ +(\w+) --> (.*)$`).FindAllStringSubmatch(text, -1) {
		for to := range strings.SplitSeq(m[2], " & ") {
			drawn = append(drawn, m[1]+" to "+to)
		}
	}
	for _, w := range wings {
		for to := range strings.FieldsSeq(w.mayImport) {
			if w.name != "bench" {
				want = append(want, w.name+" to "+to)
			}
		}
	}
	for _, a := range want {
		if !slices.Contains(drawn, a) {
			t.Errorf("%s: the picture lacks the arrow from %s", page, a)
		}
	}
	for _, a := range drawn {
		if !slices.Contains(want, a) {
			t.Errorf("%s: the picture has an arrow from %s, which no import is", page, a)
		}
	}
	for dir := range imports(t) {
		if strings.HasPrefix(dir, "internal/") && !slices.Contains(forTests, dir) && !strings.Contains(text, "(../"+dir+")") {
			t.Errorf("%s does not name the package %s", page, dir)
		}
	}
}

// large are packages above 3,000 lines, and why.
var large = map[string]string{
	"client":                     "the exported types of the Go SDK and their conversions (ADR 0039)",
	"internal/cli":               "one file per verb",
	"internal/confine/egress":    "two ends of one wire, one process of which every file serves one connection",
	"internal/sandbox/apply":     "planning, placing and forgetting share the steps of one plan",
	"internal/cli/remote":        "one type holds the calls of the server, as the interface backend.Backend asks for",
	"internal/server/wireconv":   "one converter for each message of the API",
	"internal/sandbox/supervise": "one process, one lock order",
	"internal/server/service":    "one type holds the answers to a server's calls, as gRPC asks for",
	"internal/view/fusefs":       "one file system, one lock order",
	"internal/view/policy":       "one trie, and the order of its rules, which deciding, explaining and checking share",
	"internal/view/layer":        "copy-up, rename and remove share a lock order",
}

func TestPackagesAreOfReadableSize(t *testing.T) {
	const most = 3000
	lines := map[string]int{}
	for _, f := range goFiles(t) {
		if !f.isTest() && !f.isGenerated() && !strings.HasPrefix(f.path, "bench") {
			lines[path.Dir(f.path)] += strings.Count(f.text, "\n")
		}
	}
	for dir, n := range lines {
		if why := large[dir]; n > most && why == "" {
			t.Errorf("%s has %d lines, more than %d: split it by what changes for its own reasons", dir, n, most)
		} else if n <= most && why != "" {
			t.Errorf("%s has %d lines: it needs no line in large", dir, n)
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
	"charm.land", "github.com/alecthomas/chroma", "github.com/grpc-ecosystem", "github.com/moby", "github.com/prometheus",
	"google.golang.org", "modernc.org",
}

// A supervisor and a guest exist once per sandbox.
func TestSupervisorAndGuestStayLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/agentfense").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		own := strings.HasPrefix(dep, module+"api") || strings.HasPrefix(dep, module+"internal/server/store")
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

// Package agentfense_test is the repository testing itself: which package may
// import which (arch_test.go), and what must hold of its files and licences.
package agentfense_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilesAreOfReadableSize(t *testing.T) {
	const most = 600
	for _, f := range goFiles(t) {
		if f.isGenerated() {
			continue
		}
		if n := strings.Count(f.text, "\n"); n > most {
			t.Errorf("%s has %d lines, more than %d: split it by family of operations", f.path, n, most)
		}
	}
}

func TestNoLooseEnds(t *testing.T) {
	mark := regexp.MustCompile(`(//|/\*|#|<!--)\s*(TODO|FIXME|XXX|HACK)\b`)
	issue := regexp.MustCompile(`#\d+`)
	for _, path := range files(t, ".go", ".md", ".yml", "Makefile") {
		for i, line := range strings.Split(read(t, path), "\n") {
			if mark.MatchString(line) && !issue.MatchString(line) {
				t.Errorf("%s:%d: a loose end without the number of its issue: %s", path, i+1, strings.TrimSpace(line))
			}
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	docs := map[string]string{} // directory -> package doc
	for _, f := range goFiles(t) {
		if f.isGenerated() {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(f.path)
		if text := parsed.Doc.Text(); text != "" && docs[dir] != "" {
			t.Errorf("%s: package %s has a second package doc", f.path, dir)
		} else if docs[dir] == "" {
			docs[dir] = text
		}
	}
	for dir, doc := range docs {
		if !strings.HasPrefix(doc, "Package ") && !strings.HasPrefix(doc, "Command ") {
			t.Errorf("%s: no package doc", dir)
		}
		// What client says is for who uses the module, as a manual.
		if n := strings.Count(doc, "\n"); n > 15 && dir != "client" {
			t.Errorf("%s: a package doc of %d lines, more than 15: move details to the types they are about", dir, n)
		}
	}
}

func TestDocumentLinksResolve(t *testing.T) {
	fenced := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchorsOf := map[string][]string{} // by file
	for _, path := range files(t, ".md") {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, path), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
				continue
			}
			if anchor != "" && anchorsOf[file] == nil {
				anchorsOf[file] = anchors(read(t, file))
			}
			if anchor != "" && !slices.Contains(anchorsOf[file], anchor) {
				t.Errorf("%s links to %s; %s has no such heading", path, m[1], file)
			}
		}
	}
}

// anchors are the names that a renderer of Markdown gives a text's headings.
func anchors(markdown string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(markdown, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

func TestChangelogFragmentsAreOneLine(t *testing.T) {
	form := regexp.MustCompile(`^(Added|Changed|Fixed|Security): [^\n]+\n$`)
	fragments, err := filepath.Glob("changelog/unreleased/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range fragments {
		if !form.MatchString(read(t, path)) {
			t.Errorf("%s is not one line that begins Added:, Changed:, Fixed: or Security:", path)
		}
	}
}

// Exit codes are a promise: the document's table and the code's constants
// agree, and no code stands in the table twice.
func TestExitCodesAreDocumented(t *testing.T) {
	documented := map[int]string{}
	row := regexp.MustCompile("(?m)^\\| `(\\d+)` \\| (.*?) \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/cli-abi.md"), -1) {
		code, _ := strconv.Atoi(m[1])
		if was, twice := documented[code]; twice {
			t.Errorf("docs/cli-abi.md gives exit code %d twice: %s; %s", code, was, m[2])
		}
		documented[code] = m[2]
	}
	got := slices.Sorted(maps.Keys(documented))
	want := append(exitConstants(t, "internal/cli/exit.go"), exitConstants(t, "internal/sandbox/supervise/api/exitcode.go")...)
	if slices.Sort(want); !cmp.Equal(got, want) {
		t.Errorf("exit codes of docs/cli-abi.md and of the code differ (-code +document):\n%s", cmp.Diff(want, got))
	}
}

// exitConstants are the values of a file's constants named exit… or Exit….
func exitConstants(t *testing.T, path string) []int {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []int
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(strings.ToLower(spec.Names[0].Name), "exit") || len(spec.Values) != 1 {
			return true
		}
		if value, ok := spec.Values[0].(*ast.BasicLit); ok {
			code, err := strconv.Atoi(value.Value)
			if err != nil {
				t.Error(err)
			}
			codes = append(codes, code)
		}
		return true
	})
	return codes
}

// licences are told by a phrase of their text.
var licences = map[string]string{
	"Permission is hereby granted, free of charge":      "MIT",
	"Redistribution and use in source and binary forms": "BSD",
	"Apache License": "Apache-2.0",
	"Permission to use, copy, modify, and/or distribute": "ISC",
	"Mozilla Public License Version 2.0":                 "MPL-2.0",
}

func TestModulesAreFreelyLicensed(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-test",
		"-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}", "./...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(modules)
	for _, line := range slices.Compact(modules) {
		path, dir, _ := strings.Cut(line, "\t")
		if _, err := licenceOf(dir); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func licenceOf(dir string) (string, error) {
	for _, pattern := range []string{"LICEN[SC]E*", "COPYING*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			flat := strings.Join(strings.Fields(string(text)), " ")
			for phrase, name := range licences {
				if strings.Contains(flat, phrase) {
					return name, nil
				}
			}
		}
	}
	return "", fmt.Errorf("no licence of the allowed kinds: %v", slices.Sorted(maps.Values(licences)))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestScriptsParse(t *testing.T) {
	scripts, err := filepath.Glob("scripts/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range append(scripts, ".ci/run") {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
}

// Each point at which a test can kill a process is one at which a test does.
func TestEveryFailpointIsTested(t *testing.T) {
	at := regexp.MustCompile(`failpoint\.At\("([^"]+)"\)`)
	tested := ""
	points := map[string]string{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.path, "_test.go") {
			tested += f.text
			continue
		}
		for _, m := range at.FindAllStringSubmatch(f.text, -1) {
			points[m[1]] = f.path
		}
	}
	for point, path := range points {
		if !strings.Contains(tested, strconv.Quote(point)) {
			t.Errorf("%s: no test kills a process at %q", path, point)
		}
	}
}

// Package machines_test checks that the program is correct Go on each machine
// that there is a wheel for, and package client on systems that have no program.
// Compiling it for another would take a minute.
package machines_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// machine is a system, and what of ours is for it.
type machine struct {
	system, architecture string
	packages             []string
}

// machines are those of `make wheels`, and those that a client may run on.
var machines = []machine{
	{"linux", "amd64", []string{"./cmd/...", "./client"}},
	{"linux", "arm64", []string{"./cmd/...", "./client"}},
	{"darwin", "arm64", []string{"./client"}},
	{"windows", "amd64", []string{"./client"}},
}

// pkg is what go list tells of a package.
type pkg struct {
	ImportPath, Dir           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	ImportMap                 map[string]string
	Module                    *struct{ Main bool }
}

func TestItTypeChecksForEachMachine(t *testing.T) {
	for _, m := range machines {
		if m.system == runtime.GOOS && m.architecture == runtime.GOARCH { // compiled for it, by every other test
			continue
		}
		t.Run(m.system+"-"+m.architecture, func(t *testing.T) {
			c := checker{architecture: m.architecture, files: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
			for _, p := range list(t, m) {
				if tests := append(p.TestGoFiles, p.XTestGoFiles...); m.system != "linux" && p.Module != nil && p.Module.Main && filepath.Base(p.Dir) == "client" && len(tests) > 0 {
					t.Errorf("client: these need Linux, and do not say so by //go:build linux: %q", tests)
				}
				if err := c.check(p); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// list returns the packages of the program, each after what it imports.
func list(t *testing.T, m machine) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,ImportMap,Module"}, m.packages...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOOS="+m.system, "GOARCH="+m.architecture, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// checker checks packages for a machine: ours whole, of others what they declare.
type checker struct {
	architecture string
	files        *token.FileSet
	done         map[string]*types.Package
}

func (c *checker) check(p pkg) error {
	if p.ImportPath == "unsafe" {
		return nil
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	config := types.Config{
		Importer:         c.importer(p.ImportMap),
		Sizes:            types.SizesFor("gc", c.architecture),
		IgnoreFuncBodies: p.Module == nil || !p.Module.Main,
	}
	var err error
	c.done[p.ImportPath], err = config.Check(p.ImportPath, c.files, files, nil)
	return err
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }

func (c *checker) importer(vendored map[string]string) types.Importer {
	return importer(func(path string) (*types.Package, error) {
		if to := vendored[path]; to != "" {
			path = to
		}
		if p := c.done[path]; p != nil {
			return p, nil
		}
		return nil, fmt.Errorf("%s: not listed", path)
	})
}

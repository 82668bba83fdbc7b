// Package machines_test checks that the program is correct Go on each machine
// that there is a wheel for. Compiling it for another would take a minute.
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

// machines are those of `make wheels`.
var machines = []string{"amd64", "arm64"}

// pkg is what go list tells of a package.
type pkg struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

func TestItTypeChecksForEachMachine(t *testing.T) {
	for _, machine := range machines {
		if machine == runtime.GOARCH { // compiled for it, by every other test
			continue
		}
		t.Run(machine, func(t *testing.T) {
			c := checker{machine: machine, files: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
			for _, p := range list(t, machine) {
				if err := c.check(p); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// list returns the packages of the program, each after what it imports.
func list(t *testing.T, machine string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./cmd/...", "./client")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+machine, "CGO_ENABLED=0")
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
	machine string
	files   *token.FileSet
	done    map[string]*types.Package
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
		Sizes:            types.SizesFor("gc", c.machine),
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

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// makeModule writes a module of modulePkgs packages and a program that uses
// them all, and builds it once: after that the build cache holds the standard
// library, and -trimpath makes it good at any path.
func makeModule(_ context.Context, dir string) error {
	root := filepath.Join(dir, treeModule)
	if err := put(filepath.Join(root, "go.mod"), []byte("module example.com/bench\n\ngo 1.24\n")); err != nil {
		return err
	}
	if err := put(filepath.Join(root, "main.go"), mainSource()); err != nil {
		return err
	}
	for i := range modulePkgs {
		for j := range 4 {
			if err := put(filepath.Join(root, fmt.Sprintf("p%02d/file%d.go", i, j)), packageSource(i, j)); err != nil {
				return err
			}
		}
	}
	if err := put(filepath.Join(root, "p00/edited.go"), []byte("package p00\n\nconst edited = \"\"\n")); err != nil {
		return err
	}
	return hostTool(dir, treeModule, "go", "build", "-o", "../"+treeHome+"/app", ".")
}

func mainSource() []byte {
	var imports, calls strings.Builder
	for i := range modulePkgs {
		fmt.Fprintf(&imports, "\t\"example.com/bench/p%02d\"\n", i)
		fmt.Fprintf(&calls, "\tfmt.Println(p%02d.F0(1))\n", i)
	}
	return []byte("package main\n\nimport (\n\t\"fmt\"\n\n" + imports.String() + ")\n\nfunc main() {\n" + calls.String() + "}\n")
}

// packageSource gives the compiler something to do.
func packageSource(pkg, file int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "package p%02d\n\nimport (\n\t\"sort\"\n\t\"strings\"\n)\n", pkg)
	for f := range 10 {
		name := fmt.Sprintf("F%d", file*10+f)
		fmt.Fprintf(&b, "\nfunc %s(n int) string {\n\tvar parts []string\n\tfor i := range n {\n\t\tparts = append(parts, strings.Repeat(\"x\", i+%d))\n\t}\n\tsort.Strings(parts)\n\treturn strings.Join(parts, \",\")\n}\n", name, f)
	}
	if pkg == 0 && file == 0 {
		b.WriteString("\n// Edited is what a build has to see.\nfunc Edited() string { return edited }\n")
	}
	return []byte(b.String())
}

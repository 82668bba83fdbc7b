package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// crates is how many crates the program of the workspace uses.
const crates = 20

// makeCrates writes a workspace of crates without other dependencies.
func makeCrates(_ context.Context, dir string) error {
	root := filepath.Join(dir, treeCrates)
	members, dependencies, calls := []string{`"app"`}, "", ""
	for i := range crates {
		name := fmt.Sprintf("c%02d", i)
		members = append(members, fmt.Sprintf("%q", name))
		dependencies += fmt.Sprintf("%s = { path = \"../%s\" }\n", name, name)
		calls += fmt.Sprintf("    println!(\"{}\", %s::f0(1));\n", name)
		if err := putCrate(root, name, "", "lib.rs", crateSource()); err != nil {
			return err
		}
	}
	workspace := "[workspace]\nresolver = \"2\"\nmembers = [" + strings.Join(members, ", ") + "]\n"
	if err := put(filepath.Join(root, "Cargo.toml"), []byte(workspace)); err != nil {
		return err
	}
	return putCrate(root, "app", "\n[dependencies]\n"+dependencies, "main.rs", "fn main() {\n"+calls+"}\n")
}

func putCrate(root, name, more, file, source string) error {
	manifest := fmt.Sprintf("[package]\nname = %q\nversion = \"0.1.0\"\nedition = \"2021\"\n%s", name, more)
	if err := put(filepath.Join(root, name, "Cargo.toml"), []byte(manifest)); err != nil {
		return err
	}
	return put(filepath.Join(root, name, "src", file), []byte(source))
}

// crateSource gives the compiler something to do.
func crateSource() string {
	var b strings.Builder
	for i := range 20 {
		fmt.Fprintf(&b, "pub fn f%d(n: usize) -> String {\n    let mut v: Vec<String> = (0..n).map(|i| \"x\".repeat(i + %d)).collect();\n    v.sort();\n    v.join(\",\")\n}\n", i, i)
	}
	return b.String()
}

// cargoBuild builds the workspace from nothing.
func cargoBuild(in *inside) error {
	_, err := in.runIn(treeCrates, "cargo", "build", "--quiet", "--offline", "--target-dir", filepath.Join(in.Root, in.scratch()))
	if err != nil {
		return err
	}
	return installed(filepath.Join(in.scratch(), "debug/app"), 1)
}

// rustToolchain is the directory of the compiler that the host's cargo uses, "" without a compiler.
// The shims of cargo do not work without the rest of a home directory.
func rustToolchain() string {
	out, err := exec.Command("rustc", "--print", "sysroot").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

package main

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfense/agentfense/bench/egress"
)

// systemPython is the interpreter that all places have.
const systemPython = "/usr/bin/python3"

const packageFileBytes = 4 << 10

// npmFiles are what makes npm install the packages.
var npmFiles = []string{"package.json", "package-lock.json"}

// makePackages writes packages for npm and pip, which are installed without a network.
func makePackages(_ context.Context, dir string) error {
	root := filepath.Join(dir, treePkgs)
	content := text(newRandom(5), packageFileBytes)
	if err := makeNPM(root, content); err != nil {
		return err
	}
	var requirements strings.Builder
	for i := range wheels {
		name := fmt.Sprintf("bench_%03d", i)
		wheel, err := egress.PythonWheel(name, content)
		if err != nil {
			return err
		}
		if err := put(filepath.Join(root, name+"-1.0.0-py3-none-any.whl"), wheel); err != nil {
			return err
		}
		fmt.Fprintf(&requirements, "%s==1.0.0\n", name)
	}
	return put(filepath.Join(root, "requirements.txt"), []byte(requirements.String()))
}

func makeNPM(root string, content []byte) error {
	wants := map[string]string{}
	locked := map[string]any{"": map[string]any{"name": "bench", "version": "1.0.0", "dependencies": wants}}
	for i := range npmPackages {
		name := fmt.Sprintf("bench-%03d", i)
		tarball, err := egress.NPMPackage(name, content)
		if err != nil {
			return err
		}
		if err := put(filepath.Join(root, name+".tgz"), tarball); err != nil {
			return err
		}
		sum := sha512.Sum512(tarball)
		from := "file:../../" + treePkgs + "/" + name + ".tgz" // from in.scratch()
		wants[name] = from
		locked["node_modules/"+name] = map[string]any{
			"version": "1.0.0", "resolved": from, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}
	}
	for i, content := range []any{
		map[string]any{"name": "bench", "version": "1.0.0", "dependencies": wants},
		map[string]any{"name": "bench", "version": "1.0.0", "lockfileVersion": 3, "packages": locked},
	} {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := put(filepath.Join(root, npmFiles[i]), text); err != nil {
			return err
		}
	}
	return nil
}

// makeProject makes the project into which npm installs.
func makeProject(in *inside) error {
	for _, file := range npmFiles {
		content, err := os.ReadFile(filepath.Join(treePkgs, file))
		if err != nil {
			return err
		}
		if err := put(filepath.Join(in.scratch(), file), content); err != nil {
			return err
		}
	}
	return nil
}

func npmCI(in *inside) error {
	_, err := in.runIn(in.scratch(), "npm", "ci", "--silent", "--offline", "--ignore-scripts", "--no-audit", "--no-fund",
		"--no-update-notifier", "--cache", filepath.Join(in.Root, in.scratch(), "cache"))
	if err != nil {
		return err
	}
	return installed(filepath.Join(in.scratch(), "node_modules/bench-*/package.json"), npmPackages)
}

// pipInstall installs below a prefix, where pip unpacks each wheel in its place.
func pipInstall(in *inside) error {
	_, err := in.run("python3", "-m", "pip", "install", "-q", "--isolated", "--disable-pip-version-check", "--no-cache-dir", "--no-deps",
		"--no-compile", "--no-warn-script-location", "--root-user-action=ignore", "--ignore-installed", "--no-index",
		"--find-links", treePkgs, "-r", treePkgs+"/requirements.txt", "--prefix", filepath.Join(in.Root, in.scratch()))
	if err != nil {
		return err
	}
	return installed(filepath.Join(in.scratch(), "*/*/*/*/bench_*/m0.py"), wheels)
}

// installed checks how many packages there are.
func installed(pattern string, want int) error {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) != want {
		err = fmt.Errorf("%d packages are installed as %s, want %d", len(found), pattern, want)
	}
	return err
}

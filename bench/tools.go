package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// toolNames are the programs the workloads run, as the host finds them.
var toolNames = []string{"grep", "find", "tar", "rm", "git", "go", "npm", "python3", "cargo"}

// findTools returns the path of each; a place must show them at that path.
func findTools() map[string]string {
	tools := map[string]string{}
	for _, name := range toolNames {
		if p, err := exec.LookPath(name); err == nil {
			switch name { // a place may not show the toolchains of a home directory
			case "python3":
				p = systemPython
			case "cargo":
				p = filepath.Join(rustToolchain(), "bin/cargo")
			}
			if real, err := filepath.EvalSymlinks(p); err == nil {
				tools[name] = real
			}
		}
	}
	return tools
}

// run returns the standard output of a tool. It goes through a pipe: grep stops
// at the first match when it writes to /dev/null.
func (in *inside) run(name string, args ...string) ([]byte, error) {
	return in.runIn(".", name, args...)
}

func (in *inside) runIn(dir, name string, args ...string) ([]byte, error) {
	path := in.Tools[name]
	if path == "" {
		return nil, fmt.Errorf("%s: not installed", name)
	}
	var out bytes.Buffer
	var errs tail
	cmd := exec.Command(path, args...)
	cmd.Dir = filepath.Join(in.Root, dir)
	cmd.Env = toolEnv(in.Root, filepath.Dir(path))
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes(), nil
}

// toolEnv makes a tool's doings depend on the tree below root alone: caches and
// temporary files included, which thus are on the file system measured.
func toolEnv(root, bin string) []string {
	return []string{
		"PATH=" + bin + ":/usr/bin:/bin",
		"LC_ALL=C",
		"HOME=" + filepath.Join(root, treeHome),
		"TMPDIR=" + filepath.Join(root, treeHome),
		"GOTMPDIR=" + filepath.Join(root, treeHome),
		"GOCACHE=" + filepath.Join(root, treeGoCache),
		"GOPATH=" + filepath.Join(root, treeHome, "go"),
		"GOENV=off", "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false", "GOTELEMETRY=off", "CGO_ENABLED=0",
		"CARGO_HOME=" + filepath.Join(root, treeHome, "cargo"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_COUNT=3",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_CONFIG_KEY_1=gc.auto", "GIT_CONFIG_VALUE_1=0",
		"GIT_CONFIG_KEY_2=maintenance.auto", "GIT_CONFIG_VALUE_2=false",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.com",
		"GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.com",
	}
}

// untar leaves the owner alone: a sandbox has but one.
func untar(in *inside) error {
	_, err := in.run("tar", "-xf", treeTar, "--no-same-owner", "-C", in.scratch())
	return err
}

// archiveDir is where the archive is unpacked for the i-th time.
func (in *inside) archiveDir(i int) string { return fmt.Sprintf("%s/%d", in.scratch(), i) }

func makeArchiveDirs(in *inside) error {
	for i := range archives {
		if err := os.MkdirAll(in.archiveDir(i), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func untarMany(in *inside) error {
	for i := range archives {
		if _, err := in.run("tar", "-xf", treeTar, "--no-same-owner", "-C", in.archiveDir(i)); err != nil {
			return err
		}
	}
	return nil
}

func unpackMany(in *inside) error {
	if err := makeArchiveDirs(in); err != nil {
		return err
	}
	return untarMany(in)
}

func removeMany(in *inside) error {
	_, err := in.run("rm", "-r", in.scratch())
	return err
}

func gitStatus(in *inside) error {
	out, err := in.runIn(treeRepo, "git", "status", "--porcelain")
	if err == nil && len(out) > 0 {
		return fmt.Errorf("git status: %d bytes of changes in a clean repository", len(out))
	}
	return err
}

// editRepo adds and edits files once git knows the repository's stat data in
// this place.
func editRepo(in *inside) error {
	if err := gitStatus(in); err != nil {
		return err
	}
	for i := range repoNew {
		p := fmt.Sprintf("%s/new%02d", treeRepo, i%10)
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(entry(p, i), []byte(fmt.Sprintf("%s %d\n%s", in.Nonce, i, blockContent)), 0o644); err != nil {
			return err
		}
	}
	for i := range repoEdited {
		if err := os.WriteFile(repoPath(i*repoFiles/repoEdited), []byte(fmt.Sprintf("edited %s %d\n", in.Nonce, i)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func gitCommit(in *inside) error {
	if _, err := in.runIn(treeRepo, "git", "add", "-A"); err != nil {
		return err
	}
	_, err := in.runIn(treeRepo, "git", "commit", "-qm", "bench")
	return err
}

// editModule changes one package's constant to a value no build has seen.
func editModule(in *inside) error {
	text := fmt.Sprintf("package p00\n\nconst edited = %q\n", fmt.Sprintf("%s-%d", in.Nonce, in.Pass))
	return os.WriteFile(treeModule+"/p00/edited.go", []byte(text), 0o644)
}

func goBuild(in *inside) error {
	_, err := in.runIn(treeModule, "go", "build", "-o", "../"+treeHome+"/app", ".")
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// agentName is the profile, and the program, of the agent that is measured.
const agentName = "claude"

// agentFile is where scripts/agents installs it.
const agentFile = "bin/agents/claude/node_modules/.bin/claude"

// findAgent returns the directory of the agent's program.
func findAgent() (string, error) {
	path, err := exec.LookPath(agentName)
	if err != nil {
		path, err = filepath.Abs(agentFile)
	}
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("%s is not installed; scripts/agents %[1]s does it", agentName)
	}
	return filepath.Dir(path), nil
}

// agentCommand returns a function that makes commands which run the agent in a place, with a home
// directory and a project for it alone.
func agentCommand(ctx context.Context, p place, model string, args ...string) (func() *exec.Cmd, error) {
	var d *disk
	var bin, state string
	program := func() string { return filepath.Join(bin, agentName) }
	var attr *syscall.SysProcAttr
	var begin func(home string) []string
	switch p := p.(type) {
	case *agentfense:
		d, state = p.disk, p.home
		begin = func(string) []string { return []string{p.path, agentName, "--rm", "--"} }
	case *bwrap:
		d = p.disk
		begin = func(home string) []string { return append(p.command(home), program()) }
	case *floor:
		d, attr = p.disk, ownMounts()
		begin = func(home string) []string { return p.command(home, filepath.Join(home, projectName), program()) }
	case *plain:
		d = p.disk
		begin = func(string) []string { return []string{program()} }
	default:
		return nil, errNotComparable
	}
	var err error
	if bin, err = findAgent(); err != nil {
		return nil, err
	}
	home := d.path("agent of " + p.Name())
	project, err := makeAgentHome(home)
	if err != nil {
		return nil, err
	}
	argv := append(begin(home), args...)
	env := []string{
		"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"), "LANG=C.UTF-8", "AGENTFENSE_HOME=" + state,
		"ANTHROPIC_API_KEY=of-the-benchmark", "ANTHROPIC_BASE_URL=" + model,
		// what the profile sets, too
		"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}
	return func() *exec.Cmd {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = project, env, attr
		return cmd
	}, nil
}

// projectName is the name of the project in the home directory.
const projectName = "project"

// makeAgentHome makes a home directory in which the agent asks no first questions, and returns the
// project in it.
func makeAgentHome(home string) (project string, err error) {
	project = filepath.Join(home, projectName)
	err = put(filepath.Join(project, "app.txt"), []byte("one\n"))
	if err == nil {
		err = put(filepath.Join(home, ".claude.json"), []byte(`{"hasCompletedOnboarding": true}`))
	}
	return project, err
}

func measureAgentVersion(ctx context.Context, p place) (float64, error) {
	command, err := agentCommand(ctx, p, "http://localhost:9", "--version")
	if err != nil {
		return 0, err
	}
	return medianTime(command)
}

// measureAgentStart is how long an agent takes until its model gets the first question.
func measureAgentStart(ctx context.Context, p place) (float64, error) {
	if _, is := p.(*bwrap); is { // without a network it asks no model
		return 0, errNotComparable
	}
	asked := make(chan time.Time, 1)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") {
			select {
			case asked <- time.Now():
			default: // asked again
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest) // which an agent does not repeat
		fmt.Fprint(w, `{"type": "error", "error": {"type": "invalid_request_error", "message": "that is all"}}`)
	}))
	defer model.Close()
	command, err := agentCommand(ctx, p, strings.Replace(model.URL, "127.0.0.1", "localhost", 1), "-p", "hello")
	if err != nil {
		return 0, err
	}
	return medianOf(func() (time.Duration, error) {
		errs := &tail{}
		cmd := command()
		cmd.Stdout, cmd.Stderr = errs, errs
		start := time.Now()
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return 0, err
		}
		select {
		case at := <-asked:
			return at.Sub(start), nil
		default:
			return 0, fmt.Errorf("%s ended without a question to its model: %s", agentName, errs)
		}
	})
}

package script_test

import (
	"bytes"
	"cmp"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentfense/agentfense/test/wire"
)

// servers are the running servers by their scripts.
type servers struct{ cmd *exec.Cmd }

type serversKey struct{}

func serverOf(ts *testscript.TestScript) *servers { return ts.Value(serversKey{}).(*servers) }

func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	s := serverOf(ts)
	if neg || s.cmd != nil {
		ts.Fatalf("usage: serve [NAME=VALUE...], once")
	}
	flags, settings := []string{"serve"}, slices.Clone(wire.AnyPorts)
	for _, arg := range args {
		if strings.HasPrefix(arg, "--") {
			flags = append(flags, arg)
		} else {
			settings = append(settings, arg)
		}
	}
	cmd := exec.Command(binary, flags...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append([]string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "AGENTFENSE_HOME=" + ts.Getenv("AGENTFENSE_HOME")}, settings...)
	var log bytes.Buffer
	cmd.Stderr = &log
	started, err := wire.Serve(cmd, ts.Getenv("AGENTFENSE_HOME"))
	if started == nil {
		ts.Fatalf("start the server: %v", err)
	}
	s.cmd = cmd
	ts.Defer(func() {
		if s.cmd == cmd {
			endServer(ts, syscall.SIGTERM)
		}
		ts.Logf("[server]\n%s", log.String())
		removeSandboxes(ts, cmd.Env)
	})
	if err != nil {
		ts.Fatalf("%v: %s", err, log.String())
	}
	ts.Setenv("GRPC", started.Addr)
	ts.Setenv("URL", started.URL)
	ts.Setenv("TOKEN", started.Token)
}

func cmdUnserve(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case neg || serverOf(ts).cmd == nil:
		ts.Fatalf("there is no server")
	case slices.Equal(args, []string{"kill"}):
		endServer(ts, syscall.SIGKILL)
	default:
		endServer(ts, syscall.SIGTERM)
	}
}

func endServer(ts *testscript.TestScript, signal syscall.Signal) {
	s := serverOf(ts)
	cmd := s.cmd
	s.cmd = nil
	err := cmd.Process.Signal(signal)
	if waited := cmd.Wait(); signal == syscall.SIGTERM {
		err = cmp.Or(err, waited)
	}
	ts.Check(err)
}

// removeSandboxes leaves nothing running.
func removeSandboxes(ts *testscript.TestScript, env []string) {
	agentfense := func(args ...string) string {
		cmd := exec.Command(binary, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			ts.Logf("agentfense %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	for name := range strings.FieldsSeq(agentfense("ls", "--quiet")) {
		agentfense("rm", "--force", name)
	}
}

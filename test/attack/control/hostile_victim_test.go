package control_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// victim is a directory that was uploaded to a hostile server.
type victim struct {
	t      *testing.T
	server *hostile
	root   string // of the test: the directory, what is beside it, and the state
	at     string
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{t: t, server: &hostile{reason: hostileText}, root: t.TempDir()}
	for name, text := range map[string]string{
		"work/a": "one\n", "work/.env": "secret\n", "work/sub/x": "x\n", "work/.git/HEAD": "ref: refs/heads/main\n",
		"work/.git/hooks/pre-commit.sample": "sample\n", "outside/keep": "keep\n",
	} {
		path := filepath.Join(v.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", filepath.Join(v.root, "work/link")); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(v.root, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	v.at = "unix://" + socket
	server := grpc.NewServer(grpc.UnaryInterceptor(sayingLevel))
	sandboxv1.RegisterCodebaseServiceServer(server, v.server)
	sandboxv1.RegisterSandboxServiceServer(server, v.server)
	healthv1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if out, code := v.agentfense("create", "fix", "--dir", ".", "--preset", "full-access"); code != 0 {
		t.Fatal(out)
	}
	return v
}

// agentfense runs a verb, whose output has nothing that steers a terminal.
func (v *victim) agentfense(args ...string) (output string, code int) {
	v.t.Helper()
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(v.root, "work")
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+filepath.Join(v.root, "home"), "AGENTFENSE_ENDPOINT="+v.at, "AGENTFENSE_TOKEN=t")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		v.t.Fatalf("agentfense %q: %v, %v\n%.2000q", args, err, ctx.Err(), out.String())
	}
	for _, r := range out.String() {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) || r == utf8.RuneError) {
			v.t.Errorf("agentfense %q prints %U:\n%q", args, r, out.String())
			break
		}
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// tree is all that is in and beside the directory.
func (v *victim) tree() map[string]string {
	v.t.Helper()
	found := map[string]string{}
	for _, top := range []string{"work", "outside"} {
		err := filepath.WalkDir(filepath.Join(v.root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			text := info.Mode().String()
			switch {
			case info.Mode().IsRegular():
				var content []byte
				content, err = os.ReadFile(path)
				text += " " + string(content)
			case info.Mode()&fs.ModeSymlink != 0:
				var target string
				target, err = os.Readlink(path)
				text += " " + target
			}
			found[strings.TrimPrefix(path, v.root+"/")] = text
			return err
		})
		if err != nil {
			v.t.Fatal(err)
		}
	}
	return found
}

// unharmed fails unless everything is as it was, but for what may differ.
func (v *victim) unharmed(before map[string]string, but ...string) {
	v.t.Helper()
	now := v.tree()
	for _, name := range but {
		delete(now, name)
		delete(before, name)
	}
	for name, is := range now {
		if was := before[name]; was != is {
			v.t.Errorf("%q is %q, and was %q", name, is, was)
		}
	}
	for name := range before {
		if _, is := now[name]; !is {
			v.t.Errorf("%q is gone", name)
		}
	}
}

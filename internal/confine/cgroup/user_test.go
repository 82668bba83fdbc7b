package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asUserEnv makes the test binary run as an ordinary user, see TestMain.
const asUserEnv = "AGENTFENSE_CGROUP_AS_USER"

func TestMain(m *testing.M) {
	if os.Getenv(asUserEnv) != "" {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		if err := useAsUser(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const nobody = 65534

// TestAnOrdinaryUser runs as user nobody, once without and once with a delegated group.
func TestAnOrdinaryUser(t *testing.T) {
	h := realHost(t, GroupLimits{})
	run := func(t *testing.T, add func(int) error) string {
		t.Helper()
		cmd := exec.Command("/proc/self/fd/3")
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer self.Close()
		var out strings.Builder
		cmd.Env, cmd.ExtraFiles, cmd.Stdout, cmd.Dir = []string{asUserEnv + "=1", "PATH=" + os.Getenv("PATH")}, []*os.File{self}, &out, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := startIn(t, add, cmd).Wait(); err != nil {
			return out.String()
		}
		return ""
	}
	t.Run("without delegation is told what to do", func(t *testing.T) {
		out := run(t, func(int) error { return nil })
		if !strings.Contains(out, "may not write to its own cgroup (fix: ") {
			t.Errorf("output %q, want the reason and the fix", out)
		}
	})
	t.Run("with a group handed over makes and removes its own in it", func(t *testing.T) {
		var bases []string
		for _, at := range h.hierarchies {
			base := filepath.Join(at.base, fmt.Sprintf("agentfense-test-%d", os.Getpid()))
			if err := h.kernel.mkdir(base); err != nil {
				t.Fatal(err)
			}
			bases = append(bases, base)
			t.Cleanup(func() {
				if err := h.kernel.remove(base); err != nil {
					t.Error(err)
				}
			})
			for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
				if exists(base, file) {
					if err := os.Chown(filepath.Join(base, file), nobody, nobody); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		out := run(t, func(pid int) error {
			for _, base := range bases {
				if err := write(base, "cgroup.procs", fmt.Sprint(pid)); err != nil {
					return err
				}
			}
			return nil
		})
		if out != "" {
			t.Errorf("output %q, want none", out)
		}
		for _, base := range bases {
			if exists(base, parentName) {
				t.Errorf("%s is left in %s", parentName, base)
			}
		}
	})
}

// useAsUser makes a group, runs a process in it, kills it and cleans up.
func useAsUser() error {
	h, err := Detect()
	if err != nil {
		return err
	}
	if !h.Usable() {
		return h.unusable()
	}
	g, err := h.Create("user", GroupLimits{})
	if err != nil {
		return err
	}
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		return errors.Join(err, g.Delete())
	}
	err = errors.Join(g.Add(cmd.Process.Pid), g.Kill())
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if waited := cmd.Wait(); waited == nil {
		err = errors.Join(err, errors.New("the process was not killed"))
	}
	return errors.Join(err, g.Delete())
}

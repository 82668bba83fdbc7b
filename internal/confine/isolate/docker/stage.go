package docker

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// The stage is a tmpfs below the sandbox's directory with the files that are mounted
// inside. So mount tables inside show only their path on the stage.
const stageName = "docker"

// Files on the stage, and their paths inside.
const (
	socketName = "socket"
	insideDir  = isolate.NotesDir
	initPath   = insideDir + "/init"
	socketPath = insideDir + "/" + socketName
)

// stageBytes bounds the stage. The file of certificates is the largest in it.
const stageBytes = 2 * isolate.MaxBundle

// stage mounts and fills the stage and returns its path.
func (p *plan) stage() (string, error) {
	dir := filepath.Join(p.spec.Dir, stageName)
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", errdefs.New(errdefs.Internal, "stage: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("mode=0755,size=%d", stageBytes)); err != nil {
		return "", errdefs.New(errdefs.Unsupported, "stage: %w", err)
	}
	for name, content := range p.etc() {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, []byte(content), 0o644)
		if err = errors.Join(err, os.Chmod(path, 0o644)); err != nil {
			return "", errdefs.New(errdefs.Internal, "stage %s: %w", name, err)
		}
	}
	// The daemon can make a slave bind only of a shared mount.
	for _, view := range p.views() {
		if err := unix.Mount("", view.Source, "", unix.MS_SHARED, ""); err != nil {
			return "", errdefs.New(errdefs.Unsupported, "share the view: %w", err)
		}
	}
	return dir, nil
}

// etc returns the files of /etc, by name, that must name the sandbox instead of the host,
// the image or the daemon's network.
func (p *plan) etc() map[string]string {
	s := p.spec
	passwd, group := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", s.User, s.UID, s.GID, s.Home), fmt.Sprintf("%s:x:%d:\n", s.User, s.GID)
	if s.User != "root" {
		passwd, group = "root:x:0:0::/root:/bin/sh\n"+passwd, "root:x:0:\n"+group
	}
	const nobody = 65534
	if s.UID != nobody && s.User != "nobody" {
		passwd += fmt.Sprintf("nobody:x:%d:%d::/nonexistent:/bin/false\n", nobody, nobody)
		group += fmt.Sprintf("nogroup:x:%d:\n", nobody)
	}
	files := map[string]string{"passwd": passwd, "group": group, "hostname": s.Hostname + "\n"}
	if s.Net == isolate.NetNone || s.Net == isolate.NetNamed {
		files["hosts"] = "127.0.0.1 localhost " + s.Hostname + "\n::1 localhost\n"
		files["resolv.conf"] = ""
	}
	for name, content := range s.Etc {
		files[name] = string(content)
	}
	for _, m := range p.mounts { // a requested mount replaces it
		delete(files, strings.TrimPrefix(m.Target, "/etc/"))
	}
	return files
}

// clearStage removes the stage in a sandbox's directory. It succeeds if there is none.
func clearStage(sandbox string) error {
	dir := filepath.Join(sandbox, stageName)
	for {
		err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // not mounted
			break
		}
		if err != nil {
			return errdefs.New(errdefs.Internal, "unmount the stage: %w", err)
		}
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
		return errdefs.New(errdefs.Internal, "remove the stage: %w", err)
	}
	return nil
}

// views returns the supervisor's file systems, each with the mount that contains it as
// Source.
func (p *plan) views() []isolate.Mount {
	views := []isolate.Mount{{Source: p.spec.View, View: p.spec.ViewName, Target: p.spec.Workspace}}
	for _, m := range p.mounts {
		if m.View != "" {
			views = append(views, isolate.Mount{Source: p.spec.View, View: m.View, Target: m.Target})
		}
	}
	if p.spec.HomeDir != "" {
		views = append(views, isolate.Mount{Source: p.spec.HomeDir, Target: p.spec.Home})
	}
	return views
}

// verify checks that PID 1 has the view at the workspace, and a kept home at the home
// directory. A daemon that does not see our mounts would mount the empty directories below
// them.
func (p *plan) verify(pid int) error {
	for _, view := range p.views() {
		want, err := mountAt("/proc/self/mountinfo", view.Source)
		if err != nil {
			return err
		}
		got, err := mountAt(fmt.Sprintf("/proc/%d/mountinfo", pid), view.Target)
		if err != nil {
			return err
		}
		if want == "" || got != want {
			return errdefs.New(errdefs.Unsupported, "docker: the daemon does not see the view's mount; it must run in this mount namespace (systemd: no PrivateMounts or MountFlags for docker.service)")
		}
	}
	return nil
}

// mountAt returns the device number of the topmost mount at path (proc_pid_mountinfo(5)),
// or "".
func mountAt(table, path string) (string, error) {
	f, err := os.Open(table)
	if err != nil {
		return "", errdefs.New(errdefs.Unsupported, "read the mounts: %w", err)
	}
	defer f.Close()
	device := ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && unescape(fields[4]) == path {
			device = fields[2]
		}
	}
	return device, lines.Err()
}

// unescape undoes the octal escapes of a mount table.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace

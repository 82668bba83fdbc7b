package bwrap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// The parts of the host's /etc in a sandbox: what the linker, the C library, TLS, time
// zones, shells and interpreters need to start. None contains accounts, keys, tokens or
// addresses. Files that may (gitconfig, npmrc, pip.conf, maven/settings.xml,
// R/Renviron.site, php/*/fpm, environment, networks, ssh, ssl/private, machine-id, adjtime
// …) are missing; a user can add them with a mount.
var (
	etcFilePatterns = []string{
		"ld.so.cache", "ld.so.conf", "ld-musl-*.path",
		"localtime", "timezone", "locale.conf", "locale.alias", "default/locale", "vconsole.conf",
		"nsswitch.conf", "host.conf", "gai.conf", "protocols", "services", "rpc", "ethertypes",
		"mime.types", "magic", "magic.mime", "mailcap",
		"os-release", "debian_version", "lsb-release", "redhat-release", "system-release", "fedora-release", "alpine-release", "arch-release",
		"profile", "bash.bashrc", "bashrc", "inputrc", "shells", "zsh/*", "csh.cshrc", "nanorc", "DIR_COLORS", "manpath.config", "man_db.conf", "papersize",
		"maven/m2.conf", "maven/logging/*", "R/Makeconf", "R/Renviron", "R/ldpaths", "R/repositories",
		"php.ini", "php.d/*", "php/php.ini", "php/conf.d/*", "login.defs", "ssl/openssl.cnf", "ssl/cert.pem", "pki/tls/openssl.cnf", "pki/tls/cert.pem", "ca-certificates.conf",
	}
	etcDirPatterns = []string{
		"alternatives", "ld.so.conf.d", "profile.d", "terminfo", "fonts", "vim", "crypto-policies",
		"ssl/certs", "ca-certificates", "pki/ca-trust", "pki/tls/certs",
		"python3*", "perl", "java*", "ruby*", "php/*/cli", "php/*/mods-available", "lua*", "texmf", "emacs",
	}
	// etcNetFiles are shown only with the host's network.
	etcNetFiles = []string{"resolv.conf", "hosts"}
)

// maxEtcFile is the size of the largest file of /etc that is copied, in bytes.
const maxEtcFile = 16 << 20

// etcFile is a file of the sandbox's /etc, or a symbolic link.
type etcFile struct {
	content []byte
	link    string
}

// etcDirs returns the directories of the host's /etc that the sandbox sees.
func etcDirs() []string {
	var dirs []string
	for _, pattern := range etcDirPatterns {
		matches, _ := filepath.Glob("/etc/" + pattern)
		for _, m := range matches {
			if isRealDir(m) {
				dirs = append(dirs, m)
			}
		}
	}
	return dirs
}

// readEtc reads the files of the sandbox's /etc before the stage covers the host's. It
// copies them; a bind mount would not follow a replaced file either.
func (p *plan) readEtc() error {
	p.etcFiles = map[string]etcFile{}
	for _, pattern := range etcFilePatterns {
		matches, _ := filepath.Glob("/etc/" + pattern)
		for _, path := range matches {
			if err := p.readEtcFile(path); err != nil {
				return err
			}
		}
	}
	p.synthesise()
	if p.spec.Net == isolate.NetHost {
		for _, name := range etcNetFiles {
			if err := p.copyEtcFile("/etc/" + name); err != nil {
				return err
			}
		}
	}
	return p.readCertificates()
}

// readEtcFile keeps links into /usr and copies other files.
func (p *plan) readEtcFile(path string) error {
	target, err := os.Readlink(path)
	if err != nil {
		return p.copyEtcFile(path)
	}
	absolute := target
	if !filepath.IsAbs(target) {
		absolute = filepath.Join(filepath.Dir(path), target)
	}
	if safefs.IsBelow(filepath.Clean(absolute), "/usr") {
		p.etcFiles[path] = etcFile{link: target}
		return nil
	}
	return p.copyEtcFile(path)
}

// copyEtcFile omits a file that is absent, not regular or not readable by everyone. Root
// could read the latter, but the sandbox must not.
func (p *plan) copyEtcFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return errdefs.New(errdefs.Precondition, "read %s: %w", path, cause(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o004 == 0 {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(f, maxEtcFile))
	if err != nil {
		return errdefs.New(errdefs.Precondition, "read %s: %w", path, cause(err))
	}
	p.etcFiles[path] = etcFile{content: content}
	return nil
}

// synthesise makes the files that must name the sandbox instead of the host.
func (p *plan) synthesise() {
	s := p.spec
	passwd, group := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", s.User, s.UID, s.GID, s.Home), fmt.Sprintf("%s:x:%d:\n", s.User, s.GID)
	if _, err := os.Stat("/bin/bash"); err == nil {
		passwd = strings.Replace(passwd, ":/bin/sh", ":/bin/bash", 1)
	}
	if s.UID != 0 && s.User != "root" {
		passwd = "root:x:0:0::/root:/bin/sh\n" + passwd
	}
	if s.GID != 0 && s.User != "root" {
		group = "root:x:0:\n" + group
	}
	const nobody = 65534 // the kernel's overflow id, of unmapped users
	if s.UID != nobody && s.User != "nobody" {
		passwd += fmt.Sprintf("nobody:x:%d:%d::/nonexistent:/bin/false\n", nobody, nobody)
	}
	if s.GID != nobody && s.User != "nogroup" {
		group += fmt.Sprintf("nogroup:x:%d:\n", nobody)
	}
	p.etcFiles["/etc/passwd"] = etcFile{content: []byte(passwd)}
	p.etcFiles["/etc/group"] = etcFile{content: []byte(group)}
	p.etcFiles["/etc/hostname"] = etcFile{content: []byte(s.Hostname + "\n")}
	p.etcFiles["/etc/hosts"] = etcFile{content: []byte("127.0.0.1 localhost " + s.Hostname + "\n::1 localhost\n")}
	p.etcFiles["/etc/mtab"] = etcFile{link: "../proc/self/mounts"}
	for name, content := range s.Etc {
		p.etcFiles["/etc/"+name] = etcFile{content: content}
	}
}

// buildEtc writes /etc to the stage, after its directories are bound. It also makes mount
// points below /etc that do not exist on the host.
func (p *plan) buildEtc() error {
	for path, file := range p.etcFiles {
		target := filepath.Join(stageDir, path)
		err := makeDir(filepath.Dir(target))
		if err == nil && file.link != "" {
			err = os.Symlink(file.link, target)
		} else if err == nil {
			err = writeNew(target, file.content)
		}
		if err != nil {
			return errdefs.New(errdefs.Internal, "stage %s: %w", path, cause(err))
		}
	}
	return p.makeEtcPoints()
}

// makeEtcPoints makes the mount points below /etc, except in a directory of the host, which
// must not be written.
func (p *plan) makeEtcPoints() error {
	view := mount{isolate.Mount{Target: p.spec.Workspace}, true}
	for _, m := range append([]mount{view}, p.mounts...) {
		if !safefs.IsBelow(m.Target, "/etc") || isolate.IsBelowAny(m.Target, p.etcDirs) {
			continue
		}
		target := filepath.Join(stageDir, m.Target)
		err := makeDir(filepath.Dir(target))
		if err == nil && m.dir {
			err = makeDir(target)
		} else if err == nil {
			err = os.WriteFile(target, nil, 0o644)
		}
		if err != nil {
			return errdefs.New(errdefs.Internal, "stage %s: %w", m.Target, cause(err))
		}
	}
	return nil
}

// writeNew writes a file that everyone can read, whatever the umask.
func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	_, err = f.Write(content)
	return err
}

package service

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/mounted"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxMounts limits the mounts of a sandbox: each has watches and open files of its own.
const maxMounts = 16

// newMounts checks the mounts of a new sandbox and returns those of its record. Errors: Invalid,
// NotFound; Denied for what the configuration does not let the owner mount.
func (s *Service) newMounts(owner, workspace string, asked []wireconv.NewMount) ([]record.Mount, error) {
	if len(asked) > maxMounts {
		return nil, errdefs.New(errdefs.Invalid, "mounts: %d are more than %d", len(asked), maxMounts)
	}
	var specs []mountspec.Spec
	var places []mountspec.Place
	var mounts []record.Mount
	size := 0
	for i, m := range asked {
		places = append(places, mountspec.Place{Target: m.Target, Mode: m.Mode})
		made, err := s.newMount(owner, m, mounts)
		if err == nil {
			err = mountspec.CheckPlaces(workspace, places)
		}
		if size += bytesOf(made.Rules); err == nil && size > maxRuleBytes {
			err = errdefs.New(errdefs.Invalid, "rules: those of all mounts take more than %d bytes", maxRuleBytes)
		}
		if err != nil {
			return nil, errdefs.New(errdefs.KindOf(err), "mounts[%d]: %w", i, err)
		}
		specs, mounts = append(specs, m.Spec), append(mounts, made)
	}
	if err := mountspec.Names(specs); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "mounts: %w", err)
	}
	for i := range mounts {
		mounts[i].Name = specs[i].Name
	}
	return mounts, nil
}

// newMount checks a mount; others are those before it.
func (s *Service) newMount(owner string, asked wireconv.NewMount, others []record.Mount) (record.Mount, error) {
	path, source, err := s.openSource(owner, asked.Source)
	if err != nil {
		return record.Mount{}, err
	}
	defer source.Close()
	m := record.Mount{Source: record.HostPath(path), Target: record.HostPath(asked.Target), Mode: asked.Mode}
	if m.Rules, err = asked.Rules(func(string) ([]policy.Rule, error) { return asked.Sent, nil }); err != nil {
		return m, err
	}
	if err := checkRulesOf("rules", m.Rules); err != nil {
		return m, err
	}
	if err := s.permitMount(owner, m); err != nil {
		return m, err
	}
	if err := mounted.Identify(s.home, &m, others); err != nil || !m.HasDelta() {
		return m, err
	}
	// Identified by its path, to which another directory may have come meanwhile.
	return m, record.Source{Path: m.Source, Dev: m.Dev, Ino: m.Ino, Born: m.Born}.IsOpen(source)
}

// openSource opens the directory of a mount beneath the root that contains it, and returns its path
// without symbolic links. A link below the root may lead to another directory below it. Errors:
// Denied outside of a root, Invalid, NotFound.
func (s *Service) openSource(owner, path string) (string, *os.File, error) {
	root, ok := s.config.RootOf(path, owner)
	if !ok {
		return "", nil, notMountable(path, owner)
	}
	f, err := openBeneath(root.Path, path)
	switch {
	case errors.Is(err, unix.EXDEV):
		return "", nil, errdefs.New(errdefs.Denied, "source %s: a symbolic link leads out of %s", vpath.Quote(path), vpath.Quote(root.Path))
	case errors.Is(err, unix.ENOTDIR):
		return "", nil, errdefs.New(errdefs.Invalid, "source %s: not a directory, and a server mounts directories only", vpath.Quote(path))
	case err != nil:
		return "", nil, errdefs.New(safefs.Kind(err), "source %s: %w", vpath.Quote(path), err)
	}
	real, err := s.checkSource(f, owner)
	if err != nil {
		f.Close()
		return "", nil, errdefs.New(errdefs.KindOf(err), "source %s: %w", vpath.Quote(path), err)
	}
	return real, f, nil
}

// openBeneath opens a directory that is, by name, below root, without leaving it. The path of root
// has no symbolic links.
func openBeneath(root, path string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	top, err := unix.Openat2(unix.AT_FDCWD, root, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, err
	}
	defer unix.Close(top)
	rel := "." + path[len(root):]
	fd, err := unix.Openat2(top, rel, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// checkSource refuses an open directory that the server cannot read, or that shows its own files.
// It returns the path of the directory.
func (s *Service) checkSource(f *os.File, owner string) (string, error) {
	fd := int(f.Fd())
	path, err := os.Readlink(safefs.ProcPath(fd))
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil {
		err = unix.Faccessat(fd, ".", unix.R_OK|unix.X_OK, unix.AT_EACCESS)
	}
	if err != nil {
		return "", errdefs.New(safefs.Kind(err), "%w", record.UnwrapErrno(err))
	}
	if _, ok := s.config.RootOf(path, owner); !ok { // removed, or moved away
		return "", notMountable(path, owner)
	}
	apart, err := s.codebases.IsApart(path, st.Dev, st.Ino, s.ownFiles()...)
	if err == nil && !apart {
		err = errdefs.New(errdefs.Denied, "it would show the server's own files")
	}
	if err == nil {
		err = mountspec.CheckSource(path)
	}
	return path, err
}

// ownFiles are files of the server that no sandbox may see.
func (s *Service) ownFiles() []string {
	c := s.config
	files := []string{c.Auth.TokenFile, c.Storage.DBPath, c.Server.TLS.Key, c.Export.OTLPHeaderFile}
	return append(files, c.SecretFiles()...)
}

func notMountable(path, owner string) error {
	return errdefs.New(errdefs.Denied, "source %s: not below a directory that this server lets the owner %s mount (mounts.roots in its configuration)", vpath.Quote(path), vpath.Escape(owner))
}

// permitMount refuses a mount that the configuration does not let the owner have. Errors: Denied.
func (s *Service) permitMount(owner string, m record.Mount) error {
	root, ok := s.config.RootOf(string(m.Source), owner)
	switch {
	case !ok:
		return notMountable(string(m.Source), owner)
	case !mounted.HasView(m):
		return errdefs.New(errdefs.Denied, "mode %q works only on this host, not on a server", m.Mode)
	case m.IsWritable() && !root.Writable:
		return errdefs.New(errdefs.Denied, "mode %s: commands could write in %s, which this server lets sandboxes only read (writable in mounts.roots of its configuration)", m.Mode, vpath.Quote(root.Path))
	case policy.Keeps(m.Rules) && !root.Keep:
		return errdefs.New(errdefs.Denied, "apply: keep: this server applies no changes in %s without a review (keep in mounts.roots of its configuration): leave it out, and apply the changes", vpath.Quote(root.Path))
	}
	return nil
}

// permitMounts refuses mounts of a sandbox that the configuration, or what is at their paths, has
// changed for. The supervisor opens the paths, too, and follows no symbolic link. A caller who may
// not know the mounts does not learn their sources. Errors: Denied, NotFound, Precondition.
func (s *Service) permitMounts(ctx context.Context, sb *record.Sandbox) error {
	r := sb.Record()
	for _, m := range r.Mounts {
		err := s.permitNow(r.Served.OwnerID, m)
		switch {
		case err == nil:
		case !mayKnowPolicy(ctx):
			return errdefs.New(errdefs.KindOf(err), "mount %s: cannot be mounted any more; a token with the scope read learns why", m.Name)
		default:
			return errdefs.New(errdefs.KindOf(err), "mount %s: %w", m.Name, err)
		}
	}
	return nil
}

// withoutSources returns an error about a sandbox as a caller may see it who may not know the
// sources of its mounts.
func withoutSources(ctx context.Context, sb *record.Sandbox, err error) error {
	if err == nil || mayKnowPolicy(ctx) || errdefs.Is(err, errdefs.Internal) {
		return err // an internal error goes to the log
	}
	var sources []string
	for _, m := range sb.Record().Mounts {
		sources = append(sources, string(m.Source))
	}
	slices.SortFunc(sources, func(a, b string) int { return len(b) - len(a) }) // one may be in another
	text := err.Error()
	for _, source := range sources {
		text = hide(text, source, "(of a mount)")
	}
	return &reworded{err, text}
}

// reworded is an error with another text.
type reworded struct {
	error
	text string
}

// Error returns the other text.
func (r *reworded) Error() string { return r.text }

// Unwrap returns the error with its own text.
func (r *reworded) Unwrap() error { return r.error }

// permitNow is permitMounts for one mount.
func (s *Service) permitNow(owner string, m record.Mount) error {
	if err := s.permitMount(owner, m); err != nil {
		return err
	}
	path, f, err := s.openSource(owner, string(m.Source))
	if err != nil {
		return err
	}
	f.Close()
	if path != string(m.Source) {
		return errdefs.New(errdefs.Precondition, "source %s: a symbolic link is at the path of the directory now", m.Source)
	}
	return nil
}

// changesToRead is changesFor of changes that are shown beside their source. Errors: Denied, too.
func (s *Service) changesToRead(ctx context.Context, key record.ID, mount string) (*record.Sandbox, error) {
	sb, part, err := s.changesFor(ctx, key, mount)
	if err == nil {
		err = s.permitRead(sb, mount)
	}
	return part, err
}

// changesFor returns a sandbox of the caller, and the same with a mount in place of its workspace;
// "" is the workspace. Errors: as sandbox; those of record.Sandbox.InMount.
func (s *Service) changesFor(ctx context.Context, key record.ID, mount string) (sb, part *record.Sandbox, err error) {
	if sb, err = s.sandbox(ctx, key); err != nil {
		return nil, nil, err
	}
	part, err = sb.InMount(mount)
	return sb, part, err
}

// permitApply refuses to write to the source of a mount that is no longer writable. Errors: Denied.
func (s *Service) permitApply(sb *record.Sandbox) error {
	if sb.Mount() == "" {
		return nil
	}
	r := sb.Record()
	if root, ok := s.config.RootOf(string(r.Source.Path), r.Served.OwnerID); !ok || !root.Writable {
		return errdefs.New(errdefs.Denied, "mount %s: this server does not let sandboxes of the owner %s write its source (mounts.roots in its configuration)", sb.Mount(), vpath.Escape(r.Served.OwnerID))
	}
	return nil
}

// permitRead refuses to read the source of a mount that is no longer below a root. Errors: Denied.
func (s *Service) permitRead(sb *record.Sandbox, mount string) error {
	r := sb.Record()
	for _, m := range r.Mounts {
		if m.Name != mount {
			continue
		}
		if _, ok := s.config.RootOf(string(m.Source), r.Served.OwnerID); !ok {
			return errdefs.New(errdefs.Denied, "mount %s: this server does not let the owner %s mount its source (mounts.roots in its configuration)", mount, vpath.Escape(r.Served.OwnerID))
		}
	}
	return nil
}

// CheckRoots refuses roots of mounts that lead through a symbolic link: who can change the link
// could show other directories. It returns those that do not exist. Errors: Invalid.
func CheckRoots(roots []config.MountRoot) (absent []string, err error) {
	for _, root := range roots {
		f, err := openBeneath(root.Path, root.Path)
		switch {
		case err == nil:
			f.Close()
		case errors.Is(err, unix.ENOENT):
			absent = append(absent, root.Path)
		case errors.Is(err, unix.ELOOP):
			return nil, errdefs.New(errdefs.Invalid, "mounts.roots: %s leads through a symbolic link: name the directory to which it leads", vpath.Quote(root.Path))
		default:
			return nil, errdefs.New(errdefs.Invalid, "mounts.roots: %s: %w", vpath.Quote(root.Path), err)
		}
	}
	return absent, nil
}

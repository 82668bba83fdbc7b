package merge

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// build makes the merged state in a head that no sandbox has yet.
func (p *plan) build(dir string) (err error) {
	into := p.o.Into
	source, err := into.Stored.Source.Open()
	if err != nil {
		return err
	}
	defer source.Close()
	stack, err := changes.OpenLayers(into, source, layer.Options{
		Dir: dir, Quota: changes.QuotaOf(&into.Stored),
		Kept: func() ([]string, error) { return snapshot.KeptLayers(into, "") },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stack.Close()) }()
	b := builder{stack}
	for _, s := range slices.Backward(p.steps) {
		if err := b.clear(s); err != nil {
			return err
		}
	}
	failpoint.At("merge: cleared")
	for _, s := range p.steps {
		if err := b.make(s); err != nil {
			return err
		}
	}
	for _, s := range p.steps {
		if s.becomes == nil || s.baseOf == nil {
			continue
		}
		if err := stack.CopyBase(s.path, s.baseOf.work.Stack, s.base); err != nil {
			return err
		}
	}
	return nil
}

// builder makes what steps say in a stack.
type builder struct{ stack *layer.Stack }

// clear removes what a step replaces or removes. It takes entries in a directory before it.
func (b builder) clear(s *step) error {
	if s.becomes == nil || s.modeOnly {
		return nil
	}
	now, err := b.stack.LookupStored(s.path)
	switch {
	case isNothing(err):
		return nil
	case err != nil:
		return err
	case !now.IsDir():
		_, err = b.stack.Unlink(s.path, false)
	case !s.becomes.isDir():
		err = b.stack.Rmdir(s.path, nil)
	}
	return err
}

// make makes what a step says, a directory before the entries in it.
func (b builder) make(s *step) error {
	if s.becomes == nil || s.becomes.isAbsent() {
		return nil
	}
	if !s.modeOnly {
		if err := b.create(s); err != nil {
			return err
		}
	}
	e := s.becomes
	attributes := layer.SetAttr{}
	if e.kind() != unix.S_IFLNK {
		mode := e.perm()
		attributes.Mode = &mode
	}
	if isMade := e.isRegular() && e.open == nil; !e.isDir() && !isMade && !s.modeOnly {
		attributes.Mtime = &e.mtime
	}
	_, err := b.stack.SetAttr(s.path, attributes)
	return err
}

func (b builder) create(s *step) (err error) {
	e := s.becomes
	switch e.kind() {
	case unix.S_IFDIR:
		if now, lookup := b.stack.LookupStored(s.path); lookup == nil && now.IsDir() {
			return nil
		}
		_, err = b.stack.Mkdir(s.path, e.perm())
	case unix.S_IFLNK:
		_, err = b.stack.Symlink(e.target, s.path)
	case unix.S_IFREG:
		err = b.write(s)
	default:
		_, err = b.stack.Mknod(s.path, e.mode&(record.TypeBits|record.PermBits))
	}
	return err
}

// write makes a regular file.
func (b builder) write(s *step) (err error) {
	f, _, err := b.stack.Create(s.path, s.becomes.perm())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if s.becomes.open == nil {
		_, err = f.WriteAt(s.becomes.text, 0)
		return err
	}
	from, err := s.becomes.open()
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	return f.Fill(from, info.Size())
}

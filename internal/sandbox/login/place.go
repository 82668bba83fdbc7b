package login

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// place is a file beside another one, which it is to replace. It has room on the disk.
type place struct {
	file   *os.File // nil after commit
	target string
}

// reserve makes room for so many bytes. Errors say that the file could not be replaced.
func reserve(target string, size int) (p *place, err error) {
	info, err := os.Lstat(target)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".agentfense-*")
	if err != nil {
		return nil, err
	}
	p = &place{f, target}
	_, err = f.Write(make([]byte, size))
	if err = errors.Join(err, f.Chmod(info.Mode().Perm()&0o600), f.Sync()); err != nil {
		p.drop()
		return nil, err
	}
	return p, nil
}

// commit puts a content in the place of the file. Afterwards it survives a power cut. A content
// that could not be put there stays beside it, and the error says where.
func (p *place) commit(content []byte) error {
	_, err := p.file.WriteAt(content, 0)
	if err = errors.Join(err, p.file.Truncate(int64(len(content))), p.file.Sync()); err != nil {
		return err
	}
	name := p.file.Name()
	err = p.file.Close()
	p.file = nil // what is whole is not removed
	if renamed := os.Rename(name, p.target); renamed != nil {
		return errdefs.New(errdefs.Internal, "the new login is in %s: %w", vpath.Escape(name), renamed)
	}
	return errors.Join(err, safefs.SyncDir(filepath.Dir(p.target)))
}

// drop removes the file if it was not put in place.
func (p *place) drop() {
	if p.file == nil {
		return
	}
	_ = p.file.Close()           // it has nothing that counts
	_ = os.Remove(p.file.Name()) // what stays is empty
}

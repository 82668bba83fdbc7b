package safefs

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteDurably replaces the file name in dir by data in one step. After it returns, data survives a
// power cut. The caller ensures that no other process writes the same name.
func WriteDurably(dir, name string, data []byte) error {
	if err := WriteUnnamed(dir, name, data); err != nil {
		return err
	}
	return SyncDir(dir)
}

// WriteUnnamed is WriteDurably, but a power cut may lose the name until the caller syncs dir. It is
// for several files of a directory that does not count before that.
func WriteUnnamed(dir, name string, data []byte) error {
	temp := filepath.Join(dir, "."+name+".new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temp, filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// Replace replaces the file at path by data in one step. Afterwards data survives a power cut. Who
// reads it has the old file or the new one.
func Replace(path string, data []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".agentfense-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(dir)
}

// SyncDir makes the entries of dir durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

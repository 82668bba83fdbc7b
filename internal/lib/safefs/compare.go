//go:build linux

package safefs

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
)

// IsBelow reports whether path is dir or below it, only by name. Both are clean and absolute.
func IsBelow(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// blocks are pairs of buffers of HaveSameContent. Most files are smaller than one.
var blocks = sync.Pool{New: func() any { return new([2][64 << 10]byte) }}

// HaveSameContent reports whether two contents are equal. It reads them up to the first difference.
func HaveSameContent(x, y io.Reader) (bool, error) {
	pair := blocks.Get().(*[2][64 << 10]byte)
	defer blocks.Put(pair)
	a, b := pair[0][:], pair[1][:]
	for {
		n, errX := io.ReadFull(x, a)
		m, errY := io.ReadFull(y, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		if errX != nil || errY != nil {
			return isEnd(errX) && isEnd(errY), errors.Join(unlessEnd(errX), unlessEnd(errY))
		}
	}
}

func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func unlessEnd(err error) error {
	if isEnd(err) {
		return nil
	}
	return err
}

package secret

import (
	"errors"
	"io"
)

// Masker finds values in text, as they are and in the encodings that servers send back (see
// patternsOf). It is safe for concurrent use.
type Masker struct {
	starts  [256][]pattern // by the byte with which a match begins
	longest int            // most bytes of a match
}

// maskByte is written over each byte of a value, so that no length changes.
const maskByte = '*'

// NewMasker makes a Masker of values.
func NewMasker(values ...string) *Masker {
	m := &Masker{}
	for _, v := range values {
		for _, p := range patternsOf(v) {
			for start := range p.starts() {
				m.starts[start] = append(m.starts[start], p)
			}
			m.longest = max(m.longest, p.longest())
		}
	}
	return m
}

// Mask writes over each value in b, and reports whether there was one.
func (m *Masker) Mask(b []byte) (found bool) {
	for i := 0; i < len(b); i++ {
		if n, _ := m.at(b[i:]); n > 0 {
			found = true
			for j := i; j < i+n; j++ {
				b[j] = maskByte
			}
			i += n - 1
		}
	}
	return found
}

// at returns how long a value at the beginning of b is, 0 if there is none. more says that it
// depends on what comes after b.
func (m *Masker) at(b []byte) (n int, more bool) {
	for _, p := range m.starts[b[0]] {
		length, open := p.match(b)
		n, more = max(n, length), more || open
	}
	return n, more
}

// Text returns text without values.
func (m *Masker) Text(text string) string {
	b := []byte(text)
	if !m.Mask(b) {
		return text
	}
	return string(b)
}

// unsure returns how many bytes at the end of b may be the beginning of a value.
func (m *Masker) unsure(b []byte) int {
	for i := max(0, len(b)-m.longest+1); i < len(b); i++ {
		if _, more := m.at(b[i:]); more {
			return len(b) - i
		}
	}
	return 0
}

// Sure writes over each value in b, and returns how many bytes at its beginning are without one
// whatever follows; all of them if b is the last of a text.
func (m *Masker) Sure(b []byte, last bool) int {
	m.Mask(b)
	if last {
		return len(b)
	}
	return len(b) - m.unsure(b)
}

// Reader returns what r has, without values, also where two reads share one. It passes on what it
// is sure of as soon as it has it.
func (m *Masker) Reader(r io.Reader) io.Reader { return &reader{m: m, r: r} }

type reader struct {
	m    *Masker
	r    io.Reader
	buf  []byte // all but the first sure bytes are looked at again
	sure int    // bytes without values
	err  error
}

// minRead is how much is read at once at least, if there is so much.
const minRead = 4 << 10

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.sure == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fill(max(len(p), minRead))
	}
	n := copy(p, r.buf[:r.sure])
	r.buf, r.sure = r.buf[n:], r.sure-n
	return n, nil
}

// fill reads once.
func (r *reader) fill(size int) {
	held := len(r.buf)
	buf := make([]byte, held+size)
	copy(buf, r.buf)
	n, err := r.r.Read(buf[held:])
	r.buf = buf[:held+n]
	r.sure = r.m.Sure(r.buf, errors.Is(err, io.EOF))
	r.err = err
	if err != nil && !errors.Is(err, io.EOF) { // the rest may be the beginning of a value
		r.buf = r.buf[:r.sure]
	}
}

package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
)

// Masker finds values in text, as they are and in the encodings that servers send back: base64 at
// every offset, percent-encoding, hexadecimal, and the escapes of JSON. It is safe for concurrent
// use.
type Masker struct {
	patterns [][]byte // longest first
	starts   [256]bool
	longest  int
}

// maskByte is written over each byte of a value, so that no length changes.
const maskByte = '*'

// NewMasker makes a Masker of values.
func NewMasker(values ...string) *Masker {
	m := &Masker{}
	for _, v := range values {
		m.patterns = append(m.patterns, encodings(v)...)
	}
	slices.SortFunc(m.patterns, func(a, b []byte) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return bytes.Compare(a, b)
	})
	m.patterns = slices.CompactFunc(m.patterns, bytes.Equal)
	for _, p := range m.patterns {
		m.starts[p[0]] = true
		m.longest = max(m.longest, len(p))
	}
	return m
}

// encodings returns the forms of a value.
func encodings(value string) [][]byte {
	every := func(format string) string {
		var text strings.Builder
		for _, c := range []byte(value) {
			fmt.Fprintf(&text, format, c)
		}
		return text.String()
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		quoted = []byte(`""`)
	}
	digits := hex.EncodeToString([]byte(value))
	forms := []string{
		value, string(quoted[1 : len(quoted)-1]), strings.ReplaceAll(value, "/", `\/`),
		url.QueryEscape(value), url.PathEscape(value), lowerEscapes(url.QueryEscape(value)), lowerEscapes(url.PathEscape(value)),
		every("%%%02X"), every("%%%02x"), digits, strings.ToUpper(digits), every(`\u%04x`), every(`\x%02x`), every("&#%d;"),
	}
	for before := range 3 {
		forms = append(forms, inBase64(base64.RawStdEncoding, value, before), inBase64(base64.RawURLEncoding, value, before))
	}
	out := make([][]byte, len(forms))
	for i, f := range forms {
		out[i] = []byte(f)
	}
	return out
}

// lowerEscapes writes %2F as %2f.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := range b {
		if b[i] == '%' && i+2 < len(b) {
			copy(b[i:], bytes.ToLower(b[i:i+3]))
		}
	}
	return string(b)
}

// inBase64 returns the characters that a value alone decides, with so many bytes before it.
func inBase64(encoding *base64.Encoding, value string, before int) string {
	text := encoding.EncodeToString(append(make([]byte, before), value...))
	return text[(8*before+5)/6 : 8*(before+len(value))/6]
}

// Mask writes over each value in b, and reports whether there was one.
func (m *Masker) Mask(b []byte) (found bool) {
	for _, p := range m.patterns {
		for at := 0; ; {
			i := bytes.Index(b[at:], p)
			if i < 0 {
				break
			}
			found = true
			for j := at + i; j < at+i+len(p); j++ {
				b[j] = maskByte
			}
			at += i + len(p)
		}
	}
	return found
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
		if !m.starts[b[i]] {
			continue
		}
		for _, p := range m.patterns {
			if len(p) > len(b)-i && bytes.HasPrefix(p, b[i:]) {
				return len(b) - i
			}
		}
	}
	return 0
}

// Reader returns what r has, without values, also where two reads share one. It passes on what it
// is sure of as soon as it has it.
func (m *Masker) Reader(r io.Reader) io.Reader { return &reader{m: m, r: r} }

type reader struct {
	m    *Masker
	r    io.Reader
	buf  []byte // masked; all but the first sure bytes are looked at again
	sure int
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
	r.m.Mask(r.buf)
	r.sure = len(r.buf)
	if err == nil {
		r.sure -= r.m.unsure(r.buf)
		return
	}
	r.err = err
	if !errors.Is(err, io.EOF) { // the rest may be the beginning of a value
		r.sure -= r.m.unsure(r.buf)
		r.buf = r.buf[:r.sure]
	}
}

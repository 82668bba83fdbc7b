package layer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// recordKind is what a line of base.log says.
type recordKind byte

const (
	recordBase    recordKind = 'b' // path was this in the source; supersedes
	recordContent recordKind = 'c' // the same with its content, taken later; counts if nothing else differs
	recordDrop    recordKind = 'd' // path is not changed any more
	recordAlias   recordKind = 'i' // the backing file ino shows another number
	recordUnalias recordKind = 'u' // the backing file ino is gone
	recordKept    recordKind = 'k' // a content, by its hash
)

// record is one line of base.log:
//
//	CRC b DEV INO SIZE MODE NLINK MTIME CTIME SHA256 CONTENT PATH
//	CRC c (the same)
//	CRC d PATH
//	CRC i INO BIRTH SHOWN
//	CRC u INO
//	CRC k SHA256 CONTENT
//
// CRC is the CRC-32C of all that follows it, in eight hexadecimal digits.
// MODE is octal, times are SECONDS.NANOSECONDS, BIRTH is nanoseconds, "-"
// stands for what is not there, PATH is escaped (vpath.Escape) and last, and so
// is the CONTENT of k (escapeContent); the CONTENT of b and c names a file in
// base/, or is "log" for the k of that hash.
type record struct {
	kind  recordKind
	path  vpath.Path
	base  Base
	ino   uint64
	alias inodeAlias
	text  []byte // of recordKept, escaped
}

func baseRecord(p vpath.Path, b Base) record {
	return record{kind: recordBase, path: p, base: b}
}

// contentRecord is the record of the content that b brings.
func contentRecord(b *Base) record {
	return record{kind: recordKept, base: Base{SHA256: b.SHA256}, text: escapeContent(b.text)}
}

const crcDigits = 8

// appendRecord appends r as a line.
func appendRecord(b []byte, r record) []byte {
	start := len(b)
	b = append(b, "00000000 "...)
	b = append(b, byte(r.kind), ' ')
	switch r.kind {
	case recordBase, recordContent:
		b = appendBase(b, &r.base)
		b = append(b, vpath.Escape(string(r.path))...)
	case recordDrop:
		b = append(b, vpath.Escape(string(r.path))...)
	case recordAlias:
		b = strconv.AppendUint(b, r.ino, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, r.alias.birth, 10)
		b = append(b, ' ')
		b = strconv.AppendUint(b, r.alias.shown, 10)
	case recordUnalias:
		b = strconv.AppendUint(b, r.ino, 10)
	case recordKept:
		b = append(hex.AppendEncode(b, r.base.SHA256), ' ')
		b = append(b, r.text...)
	}
	crc := crc32.Checksum(b[start+crcDigits:], crcTable)
	copy(b[start:], fmt.Sprintf("%08x", crc))
	return append(b, '\n')
}

func appendBase(b []byte, base *Base) []byte {
	for _, n := range []uint64{base.Dev, base.Ino, uint64(base.Size)} {
		b = append(strconv.AppendUint(b, n, 10), ' ')
	}
	b = append(strconv.AppendUint(b, uint64(base.Mode), 8), ' ')
	b = append(strconv.AppendUint(b, uint64(base.Nlink), 10), ' ')
	for _, t := range []unix.Timespec{base.Mtime, base.Ctime} {
		b = append(strconv.AppendInt(b, t.Sec, 10), '.')
		b = append(strconv.AppendInt(b, t.Nsec, 10), ' ')
	}
	sum := "-"
	if base.SHA256 != nil {
		sum = hex.EncodeToString(base.SHA256)
	}
	content := base.content
	if content == "" {
		content = "-"
	}
	return append(b, sum+" "+content+" "...)
}

// parseRecord reads a line; ok is false for one that appendRecord would not
// have written.
func parseRecord(line []byte) (r record, ok bool) {
	kind, fields, ok := checkLine(line)
	if !ok {
		return record{}, false
	}
	r.kind = kind
	p := parser{rest: string(fields)}
	switch r.kind {
	case recordBase, recordContent:
		r.base = p.base()
		r.path = p.path()
	case recordDrop:
		r.path = p.path()
	case recordAlias:
		r.ino = p.unsigned(10)
		r.alias = inodeAlias{birth: p.signed(), shown: p.unsigned(10)}
	case recordUnalias:
		r.ino = p.unsigned(10)
	case recordKept:
		r.base.SHA256 = p.sum(p.field())
		r.text = []byte(p.rest)
	default:
		return record{}, false
	}
	return r, !p.failed
}

// checkLine returns the kind of a line and its fields; ok is false for one that
// is torn or fails its checksum.
func checkLine(line []byte) (kind recordKind, fields []byte, ok bool) {
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	if !whole || len(text) < crcDigits+len(" b ") {
		return 0, nil, false
	}
	if fmt.Sprintf("%08x", crc32.Checksum(text[crcDigits:], crcTable)) != string(text[:crcDigits]) {
		return 0, nil, false
	}
	return recordKind(text[crcDigits+1]), text[crcDigits+len(" b "):], true
}

// parser takes fields off the front of a line; failed says that one was not
// what it should be.
type parser struct {
	rest   string
	failed bool
}

func (p *parser) field() string {
	f, rest, _ := strings.Cut(p.rest, " ")
	p.rest = rest
	return f
}

func (p *parser) unsigned(base int) uint64 {
	n, err := strconv.ParseUint(p.field(), base, 64)
	p.failed = p.failed || err != nil
	return n
}

func (p *parser) signed() int64 {
	n, err := strconv.ParseInt(p.field(), 10, 64)
	p.failed = p.failed || err != nil
	return n
}

func (p *parser) time() unix.Timespec {
	sec, nsec, _ := strings.Cut(p.field(), ".")
	s, err := strconv.ParseInt(sec, 10, 64)
	n, err2 := strconv.ParseInt(nsec, 10, 64)
	p.failed = p.failed || err != nil || err2 != nil
	return unix.Timespec{Sec: s, Nsec: n}
}

func (p *parser) base() Base {
	b := Base{Dev: p.unsigned(10), Ino: p.unsigned(10), Size: int64(p.unsigned(10))}
	b.Mode = uint32(p.unsigned(8))
	b.Nlink = uint32(p.unsigned(10))
	b.Mtime, b.Ctime = p.time(), p.time()
	if sum := p.field(); sum != "-" {
		b.SHA256 = p.sum(sum)
	}
	if b.content = p.field(); b.content == "-" {
		b.content = ""
	} else if !isContentName(b.content) || b.content == inLog && b.SHA256 == nil {
		p.failed = true
	}
	return b
}

// sum decodes a hash.
func (p *parser) sum(digits string) []byte {
	sum, err := hex.DecodeString(digits)
	p.failed = p.failed || err != nil || len(sum) != sha256.Size
	return sum
}

func (p *parser) path() vpath.Path {
	raw, err := vpath.Unescape(p.rest)
	if err != nil {
		p.failed = true
		return ""
	}
	path, err := vpath.Parse(raw)
	p.failed = p.failed || err != nil || string(path) != raw
	return path
}

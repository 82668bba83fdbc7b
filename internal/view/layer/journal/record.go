package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// recordKind is the kind of a record.
type recordKind byte

const (
	recordBase    recordKind = 'b' // what the path was in the source; replaces the record before
	recordLater   recordKind = 'c' // the same base with its content, which was read later
	recordDrop    recordKind = 'd' // the path is no longer changed
	recordAlias   recordKind = 'i' // the backing file ino shows another inode number
	recordUnalias recordKind = 'u' // the backing file ino was removed
	recordContent recordKind = 'k' // a content, by its hash
)

// Record is one line of base.log:
//
//	CRC b DEV INO SIZE MODE NLINK MTIME CTIME SHA256 CONTENT PATH
//	CRC c (the same)
//	CRC d PATH
//	CRC i INO BIRTH SHOWN
//	CRC u INO
//	CRC k SHA256 CONTENT
//
// CRC is the CRC-32C of the rest of the line, in eight hexadecimal digits. MODE is
// octal, times are SECONDS.NANOSECONDS, BIRTH is in nanoseconds, and "-" stands for
// a value that is missing. PATH is last and escaped with vpath.Escape. The CONTENT
// of k is last and escaped with escapeContent. The CONTENT of b and c names a file
// in base/, or is "log" for the k record of that hash.
type Record struct {
	kind  recordKind
	path  vpath.Path
	base  Base
	ino   uint64
	alias Alias
	text  []byte // of a recordContent, escaped
}

// Alias says which inode number a backing file shows.
type Alias struct {
	Birth int64 // of the backing file, in nanoseconds: its number may be reused
	Shown uint64
}

// BaseRecord records that p was b in the source. It replaces an earlier record of p.
func BaseRecord(p vpath.Path, b Base) Record {
	return Record{kind: recordBase, path: p, base: b}
}

// LaterBaseRecord is BaseRecord for a b that was read later than the recorded one, to
// add its content. It counts only if the recorded Base has the same identity.
func LaterBaseRecord(p vpath.Path, b Base) Record {
	return Record{kind: recordLater, path: p, base: b}
}

// DropRecord records that p is no longer changed.
func DropRecord(p vpath.Path) Record { return Record{kind: recordDrop, path: p} }

// AliasRecord records which inode number the backing file ino shows.
func AliasRecord(ino uint64, a Alias) Record { return Record{kind: recordAlias, ino: ino, alias: a} }

// UnaliasRecord records that the backing file ino was removed.
func UnaliasRecord(ino uint64) Record { return Record{kind: recordUnalias, ino: ino} }

// contentRecord records the content that Keep put into b.
func contentRecord(b *Base) Record {
	return Record{kind: recordContent, base: Base{SHA256: b.SHA256}, text: escapeContent(b.text)}
}

const crcDigits = 8

// appendRecord appends the line of r to b.
func appendRecord(b []byte, r Record) []byte {
	start := len(b)
	b = append(b, "00000000 "...)
	b = append(b, byte(r.kind), ' ')
	switch r.kind {
	case recordBase, recordLater:
		b = appendBase(b, &r.base)
		b = append(b, vpath.Escape(string(r.path))...)
	case recordDrop:
		b = append(b, vpath.Escape(string(r.path))...)
	case recordAlias:
		b = strconv.AppendUint(b, r.ino, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, r.alias.Birth, 10)
		b = append(b, ' ')
		b = strconv.AppendUint(b, r.alias.Shown, 10)
	case recordUnalias:
		b = strconv.AppendUint(b, r.ino, 10)
	case recordContent:
		b = append(hex.AppendEncode(b, r.base.SHA256), ' ')
		b = append(b, r.text...)
	}
	crc := crc32.Checksum(b[start+crcDigits:], crcTable())
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

// parseRecord reads a line. ok is false for a line that appendRecord cannot have written.
func parseRecord(line []byte) (r Record, ok bool) {
	kind, fields, ok := checkLine(line)
	if !ok {
		return Record{}, false
	}
	r.kind = kind
	p := parser{rest: string(fields)}
	switch r.kind {
	case recordBase, recordLater:
		r.base = p.base()
		r.path = p.path()
	case recordDrop:
		r.path = p.path()
	case recordAlias:
		r.ino = p.unsigned(10)
		r.alias = Alias{Birth: p.signed(), Shown: p.unsigned(10)}
	case recordUnalias:
		r.ino = p.unsigned(10)
	case recordContent:
		r.base.SHA256 = p.sum(p.field())
		r.text = []byte(p.rest)
	default:
		return Record{}, false
	}
	return r, !p.failed
}

// checkLine returns the kind of a line and its fields. ok is false for a line that is torn
// or fails its checksum.
func checkLine(line []byte) (kind recordKind, fields []byte, ok bool) {
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	if !whole || len(text) < crcDigits+len(" b ") {
		return 0, nil, false
	}
	if fmt.Sprintf("%08x", crc32.Checksum(text[crcDigits:], crcTable())) != string(text[:crcDigits]) {
		return 0, nil, false
	}
	return recordKind(text[crcDigits+1]), text[crcDigits+len(" b "):], true
}

// parser removes fields from the front of a line. failed is true after a malformed field.
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
	} else if !isContentName(b.content) || b.content == inline && b.SHA256 == nil {
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

// crcTable is CRC-32C (Castagnoli), which processors compute in hardware. It is made at its
// first use, because PID 1 and the exec leaders never need it.
var crcTable = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

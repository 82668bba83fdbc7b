package query

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// The output of the process is the message columns, one message row for each row, and the message
// end; or the message failure, at any time. A message is its kind, one byte, and its content:
//
//	columns  the number of names, then each name
//	row      a value for each column
//	end      1 if there are more rows, else 0
//	failure  the errdefs.Kind, then the text
//
// Numbers are unsigned varints. A name or text is its length and its bytes. A value is its type,
// one byte, and its content. The reader does not trust the writer.
const (
	columnsMessage = 'c'
	rowMessage     = 'r'
	endMessage     = 'e'
	failureMessage = 'f'
)

// The types of values.
const (
	nullValue    = 'n'
	integerValue = 'i' // 8 bytes
	realValue    = 'r' // 8 bytes
	textValue    = 't' // a text
	blobValue    = 'b' // a text
)

// pipeBytes is the size of the buffers at both ends.
const pipeBytes = 64 << 10

// maxColumns is the largest number of columns of SQLite (SQLITE_MAX_COLUMN).
const maxColumns = 32767

// writer writes messages. The error is that of Flush.
type writer struct{ *bufio.Writer }

func (w writer) number(n uint64) { w.Write(binary.AppendUvarint(nil, n)) }

func (w writer) text(s string) {
	w.number(uint64(len(s)))
	w.WriteString(s)
}

func (w writer) columns(names []string) {
	w.WriteByte(columnsMessage)
	w.number(uint64(len(names)))
	for _, name := range names {
		w.text(name)
	}
}

func (w writer) row(values []any) error {
	w.WriteByte(rowMessage)
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			w.WriteByte(nullValue)
		case int64:
			w.WriteByte(integerValue)
			w.Write(binary.BigEndian.AppendUint64(nil, uint64(v)))
		case float64:
			w.WriteByte(realValue)
			w.Write(binary.BigEndian.AppendUint64(nil, math.Float64bits(v)))
		case string:
			w.WriteByte(textValue)
			w.text(v)
		case []byte:
			w.WriteByte(blobValue)
			w.number(uint64(len(v)))
			w.Write(v)
		default:
			return errdefs.New(errdefs.Internal, "sql: unknown value of type %T", v)
		}
	}
	return nil
}

func (w writer) end(more bool) {
	w.WriteByte(endMessage)
	if more {
		w.number(1)
	} else {
		w.number(0)
	}
}

func (w writer) failure(err error) {
	w.WriteByte(failureMessage)
	w.number(uint64(errdefs.KindOf(err)))
	w.text(err.Error())
}

// errBroken is the error of an output that ends before its end, or is not as wire.go says.
var errBroken = errors.New("its output is incomplete")

// reader reads messages. After an error it reads nothing more.
type reader struct {
	from *bufio.Reader
	left int // bytes of texts and values
	err  error
}

// readAnswer reads the whole output. Errors: errBroken, errTooLarge, and that of failure.
func readAnswer(from *bufio.Reader, most int) (Rows, error) {
	r := reader{from: from, left: maxResultBytes}
	var rows Rows
	for kind := r.byte(); r.err == nil; kind = r.byte() {
		switch {
		case kind == failureMessage:
			return Rows{}, r.failure()
		case kind == columnsMessage && rows.Columns == nil:
			rows.Columns = r.columns()
		case kind == rowMessage && rows.Columns != nil && len(rows.Values) < most:
			rows.Values = append(rows.Values, r.row(len(rows.Columns)))
		case kind == endMessage && rows.Columns != nil:
			if rows.More = r.number(1) == 1; r.err == nil {
				return rows, nil
			}
		default:
			r.fail(fmt.Errorf("unexpected message %q", kind))
		}
	}
	return Rows{}, r.err
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %w", errBroken, err)
	}
}

func (r *reader) byte() byte {
	if r.err != nil {
		return 0
	}
	b, err := r.from.ReadByte()
	if err != nil {
		r.fail(err)
	}
	return b
}

// number reads a number of at most most.
func (r *reader) number(most uint64) uint64 {
	if r.err != nil {
		return 0
	}
	n, err := binary.ReadUvarint(r.from)
	if err == nil && n > most {
		err = fmt.Errorf("the number %d is above %d", n, most)
	}
	if err != nil {
		r.fail(err)
		return 0
	}
	return n
}

// take counts n bytes of the result.
func (r *reader) take(n int) {
	if r.left -= n; r.left < 0 && r.err == nil {
		r.err = errTooLarge
	}
}

func (r *reader) bytes(n int) []byte {
	r.take(n)
	if r.err != nil {
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.from, b); err != nil {
		r.fail(err)
	}
	return b
}

func (r *reader) text() []byte { return r.bytes(int(r.number(maxResultBytes))) }

func (r *reader) columns() []string {
	names := make([]string, r.number(maxColumns))
	for i := range names {
		names[i] = string(r.text())
	}
	return names
}

// valueBytes is what a value counts beside its text.
const valueBytes = 16

func (r *reader) row(columns int) []any {
	r.take(columns * valueBytes)
	values := make([]any, columns)
	for i := range values {
		values[i] = r.value()
	}
	return values
}

func (r *reader) value() any {
	switch kind := r.byte(); kind {
	case integerValue:
		return int64(r.fixed())
	case realValue:
		return math.Float64frombits(r.fixed())
	case textValue:
		return string(r.text())
	case blobValue:
		return r.text()
	case nullValue:
	default:
		r.fail(fmt.Errorf("unknown value %q", kind))
	}
	return nil
}

func (r *reader) fixed() uint64 {
	var b [8]byte
	if r.err == nil {
		if _, err := io.ReadFull(r.from, b[:]); err != nil {
			r.fail(err)
		}
	}
	return binary.BigEndian.Uint64(b[:])
}

func (r *reader) failure() error {
	kind := errdefs.Kind(r.number(math.MaxUint8))
	text := r.text()
	switch {
	case r.err != nil:
		return r.err
	case kind != errdefs.Invalid && kind != errdefs.Exhausted:
		kind = errdefs.Internal
	}
	return errdefs.New(kind, "%s", text)
}

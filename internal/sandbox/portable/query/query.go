// Package query answers SQL about a database, in a process of its own.
//
// SQLite can only be interrupted between two steps, and one call of a function is one step that can
// take minutes. So a statement runs in a separate process, which is killed when its time is over.
// The process has a limit of memory and of processor time, sees of the files only the database, and
// ends with this process.
//
// The process is this program with Verb as its first argument: it must call Main. The process
// writes ready, reads a job as JSON, and writes what wire.go says.
package query

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Bounds limit a query. All must be positive.
type Bounds struct {
	Rows        int
	Time        time.Duration // from the start of the process to its end
	MemoryBytes int64         // above what the process needs to start
}

// Rows is what a query found. A value is nil, an int64, a float64, a string or a []byte.
type Rows struct {
	Columns []string
	Values  [][]any
	More    bool // there are more rows than Bounds.Rows
}

// TimeFormat is the format of times in the tables. It has a fixed width, so that text compares as
// time does.
const TimeFormat = "2006-01-02T15:04:05.000000000Z"

// MaxValueBytes limits a value that SQLite makes, and the statement.
const MaxValueBytes = 4 << 20

// maxResultBytes limits the values of a result together.
const maxResultBytes = 64 << 20

// errTooLarge is the error of a result above maxResultBytes.
var errTooLarge = errdefs.New(errdefs.Exhausted, "sql: the result is larger than %d MiB: select fewer columns or rows", maxResultBytes>>20)

// errMemory is the error of a query above Bounds.MemoryBytes.
var errMemory = errdefs.New(errdefs.Exhausted, "sql: the query needs too much memory: sort or group fewer rows")

// Run answers a statement, which Check has seen, about a database. The statement can only read,
// and opens no other file. When Run returns, its process has ended. Errors: Invalid for a mistake
// in the statement; Deadline; Canceled; Exhausted for a result that is too large and a query that
// needs too much memory.
func Run(ctx context.Context, db *os.File, statement string, b Bounds) (Rows, error) {
	limited, cancel := context.WithTimeout(ctx, b.Time)
	defer cancel()
	p, err := start(limited, db)
	switch {
	case err != nil && limited.Err() != nil:
		return Rows{}, overError(ctx, b)
	case err != nil:
		return Rows{}, err
	}
	defer p.close()
	var rows Rows
	if err = p.begin(statement, b); err == nil {
		rows, err = readAnswer(bufio.NewReaderSize(p.out, pipeBytes), b.Rows)
	}
	over := limited.Err()
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		cancel() // it may wait for us
	}
	ended := <-p.ended
	switch {
	case err == nil:
		return rows, nil
	case !errors.Is(err, errBroken):
		return Rows{}, err
	case over != nil:
		return Rows{}, overError(ctx, b)
	case p.said.noMemory():
		return Rows{}, errMemory
	}
	return Rows{}, errdefs.New(errdefs.Internal, "sql: the process of the query: %w (%s) %s", err, ended, p.said.line())
}

// overError is the error of a query whose context or time is over.
func overError(ctx context.Context, b Bounds) error {
	if ctx.Err() != nil {
		return errdefs.New(errdefs.Canceled, "sql: %w", ctx.Err())
	}
	return errdefs.New(errdefs.Deadline, "sql: the query takes longer than %s: simplify it, or give --timeout", b.Time)
}

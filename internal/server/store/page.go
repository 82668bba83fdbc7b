package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Page asks for a part of a listing.
type Page struct {
	Size  int    // at most so many entries, at least 1
	Token string // where the last page ended; "" for the first
}

// A page token identifies the last row of a page. It contains nothing that the caller may not know.
// Its form may change.
func pageToken(createdAt time.Time, id string) string {
	key := binary.BigEndian.AppendUint64(nil, uint64(nanos(createdAt)))
	return base64.RawURLEncoding.EncodeToString(append(key, id...))
}

// PageToken returns the token of the page after s in the listing of Sandboxes.
func (s Sandbox) PageToken() string { return pageToken(s.CreatedAt, string(s.ID)) }

// after returns the last row of the page before; for the first page, a value before every row.
func (p Page) after(isID func(string) bool) (createdAt int64, id string, err error) {
	if p.Token == "" {
		return -1 << 63, "", nil
	}
	const timeBytes = 8
	key, err := base64.RawURLEncoding.Strict().DecodeString(p.Token)
	if err != nil || len(key) < timeBytes || !isID(string(key[timeBytes:])) {
		return 0, "", errdefs.New(errdefs.Invalid, "page_token: not a token of this listing")
	}
	return int64(binary.BigEndian.Uint64(key)), string(key[timeBytes:]), nil
}

// listing is a query for rows in the order of created_at and id, the oldest
// first.
type listing[T any] struct {
	what    string // for errors
	columns string
	table   string
	isID    func(string) bool
	// equal are the values that columns must have; "" is no condition.
	equal map[string]string
	scan  func(row scanner) (T, error)
	key   func(T) (time.Time, string)
}

// scanner is the common part of *sql.Row and *sql.Rows.
type scanner interface{ Scan(to ...any) error }

// page returns one page and the token of the next, "" if it was the last.
func (l listing[T]) page(ctx context.Context, db *sql.DB, p Page) ([]T, string, error) {
	if p.Size < 1 {
		return nil, "", errdefs.New(errdefs.Invalid, "page_size %d: want 1 or more", p.Size)
	}
	createdAt, id, err := p.after(l.isID)
	if err != nil {
		return nil, "", err
	}
	var query strings.Builder
	query.WriteString("SELECT " + l.columns + " FROM " + l.table + " WHERE (created_at, id) > (?, ?)")
	args := []any{createdAt, id}
	for column, want := range l.equal {
		if want != "" {
			query.WriteString(" AND " + column + " = ?")
			args = append(args, want)
		}
	}
	query.WriteString(" ORDER BY created_at, id LIMIT ?")
	found, err := l.rows(ctx, db, query.String(), append(args, int64(p.Size)+1)...)
	switch {
	case err != nil:
		return nil, "", failed(ctx, l.what, err)
	case len(found) <= p.Size:
		return found, "", nil
	}
	found = found[:p.Size]
	return found, pageToken(l.key(found[p.Size-1])), nil
}

func (l listing[T]) rows(ctx context.Context, db *sql.DB, query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []T
	for rows.Next() {
		one, err := l.scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, rows.Err()
}

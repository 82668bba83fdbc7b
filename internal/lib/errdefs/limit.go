package errdefs

import "fmt"

// Limit is the limit of an Exhausted error: the %w of its text, which errors.As finds.
type Limit struct {
	Most     int64
	Resource string // what is limited: "bytes"
}

// Error returns the limit: "10 bytes".
func (l *Limit) Error() string { return fmt.Sprintf("%d %s", l.Most, l.Resource) }

package errdefs

import "fmt"

// Limit is the limit of ours that an Exhausted error is about: the %w of its
// text, to be found by errors.As.
type Limit struct {
	Most     int64
	Resource string // what there may be so many of: "bytes"
}

// Error returns the limit as a text gives it: "10 bytes".
func (l *Limit) Error() string { return fmt.Sprintf("%d %s", l.Most, l.Resource) }

package isolate

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
)

// Bounds of what is kept and passed on of the standard error. PID 1 writes to it too, so
// the sandbox controls its amount.
const (
	maxComplaints = 64 << 10
	maxTail       = 2 << 10
)

// Complaints is the standard error of a runtime and PID 1.
type Complaints struct {
	To io.Writer // as Spec.Stderr

	mu     sync.Mutex
	passed int
	last   []byte
}

// Write passes b on within the bound and keeps the last bytes. It never fails, so that a
// full log does not stop the writer inside.
func (c *Complaints) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pass := b[:min(len(b), maxComplaints-c.passed)]; c.To != nil && len(pass) > 0 {
		c.passed += len(pass)
		_, _ = c.To.Write(pass)
	}
	c.last = append(c.last, b...)
	if len(c.last) > maxTail {
		c.last = append(c.last[:0], c.last[len(c.last)-maxTail:]...)
	}
	return len(b), nil
}

// Tail returns the last message on one line, safe for a terminal, because PID 1 may have
// written it.
func (c *Complaints) Tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(c.last)), "\n")
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, lines[len(lines)-1])
	return fmt.Sprintf("%.500s", text)
}

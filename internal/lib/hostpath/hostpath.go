// Package hostpath is a path on the host, as JSON and messages have it.
package hostpath

import "github.com/agentfense/agentfense/internal/lib/vpath"

// Path is a path on the host, as bytes. JSON and messages have it escaped with
// vpath.Escape.
type Path string

// String returns the escaped path.
func (p Path) String() string { return vpath.Escape(string(p)) }

// MarshalText returns the escaped path.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText wrote. Errors: Invalid.
func (p *Path) UnmarshalText(text []byte) error {
	s, err := vpath.Unescape(string(text))
	*p = Path(s)
	return err
}

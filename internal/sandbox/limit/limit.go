// Package limit has the resource limits of a sandbox, as its record stores them.
package limit

import (
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Limits are the resource limits of a sandbox. Zero means no limit.
type Limits struct {
	MemoryBytes int64    `json:"memory_bytes,omitempty"`
	CPUs        float64  `json:"cpus,omitempty"`
	CPUShares   int64    `json:"cpu_shares,omitempty"` // weight against other sandboxes, 2 to 262144
	PIDs        int64    `json:"pids,omitempty"`
	DiskBytes   int64    `json:"disk_bytes,omitempty"`
	DiskInodes  int64    `json:"disk_inodes,omitempty"`
	Timeout     Duration `json:"timeout,omitempty"` // of each exec
}

// Duration is a time.Duration with the JSON form "1m30s".
type Duration time.Duration

// MarshalText returns time.Duration's text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses time.Duration's text. Errors: Invalid.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return errdefs.New(errdefs.Invalid, "duration %q: %w", text, err)
	}
	*d = Duration(v)
	return nil
}

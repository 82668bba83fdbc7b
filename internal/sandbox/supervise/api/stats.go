package api

import "time"

// Stats are what a sandbox uses.
type Stats struct {
	// Memory of all its processes now, and the most there was, 0 if nothing
	// counts that.
	MemoryBytes     int64 `json:"memory_bytes"`
	MemoryPeakBytes int64 `json:"memory_peak_bytes,omitempty"`
	// CPU is the time of all its processes, those that have ended too.
	CPU         time.Duration `json:"cpu_ns"`
	PIDs        int64         `json:"pids"` // processes and threads
	DeltaBytes  int64         `json:"delta_bytes"`
	DeltaInodes int64         `json:"delta_inodes"`
	Execs       int           `json:"execs"`    // commands that run, those of sessions too
	Sessions    int           `json:"sessions"` // that are open
	// How often limits were hit.
	OOMKills    int64 `json:"oom_kills,omitempty"`
	PIDsMaxHits int64 `json:"pids_max_hits,omitempty"`
	// ViewRequests are those that the view has answered, by kind.
	ViewRequests map[string]uint64 `json:"view_requests,omitempty"`
}

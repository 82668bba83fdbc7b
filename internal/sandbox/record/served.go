package record

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
)

// Served is what the record of a server's sandbox holds besides.
type Served struct {
	CodebaseID string `json:"codebase_id"`
	OwnerID    string `json:"owner_id"`
	// Sent are the rules as the client sent them. Record.Rules are what they
	// mean.
	Sent   []SentRule        `json:"sent,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Sync is when the changes reach the codebase, "" for what the server is
	// configured to do.
	Sync config.Sync `json:"sync,omitempty"`
	// Git is who the client is to git.
	Git gitconfig.User `json:"git,omitzero"`
	// ExpiresAt is when the server stops the sandbox; zero is never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Running says that a client has started the sandbox and nobody has stopped
	// it: one without a supervisor then has come to grief.
	Running   bool      `json:"running,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	StoppedAt time.Time `json:"stopped_at,omitzero"`
	// Failure says why the last start failed; "" if it did not.
	Failure string `json:"failure,omitempty"`
}

// SentRule is a rule in the numbers of the API's enums, 0 where the client left
// one out.
type SentRule struct {
	Pattern    string `json:"pattern"`
	Type       int32  `json:"type,omitempty"`
	Permission int32  `json:"permission,omitempty"`
	Priority   int32  `json:"priority,omitempty"`
	Origin     int32  `json:"origin,omitempty"`
	Own        bool   `json:"own,omitempty"`
}

func (s *Served) clone() *Served {
	if s == nil {
		return nil
	}
	c := *s
	c.Sent = slices.Clone(s.Sent)
	c.Labels = maps.Clone(s.Labels)
	return &c
}

// uploadedFiles is the name of an uploaded codebase's files in its directory.
const uploadedFiles = "files"

// IsUploaded reports whether the sandbox is made of an uploaded codebase, which
// only the server changes: it counts what is in it.
func (r *Record) IsUploaded() bool {
	path := string(r.Source.Path)
	return r.Served != nil && filepath.Base(path) == uploadedFiles && filepath.Base(filepath.Dir(path)) == r.Served.CodebaseID
}

// IsExpired reports whether the time of a server's sandbox is over.
func (r *Record) IsExpired(now time.Time) bool {
	return r.Served != nil && !r.Served.ExpiresAt.IsZero() && !now.Before(r.Served.ExpiresAt)
}

package record

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
)

// Served has the additional fields of a server's sandbox.
type Served struct {
	CodebaseID string `json:"codebase_id"`
	OwnerID    string `json:"owner_id"`
	// Sent are the rules as the client sent them. Record.Rules are their meaning.
	Sent   []SentRule        `json:"sent,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Sync says when the server copies the changes to the codebase; "" means the server's
	// configuration.
	Sync config.Sync `json:"sync,omitempty"`
	// Git is the client's git identity.
	Git gitconfig.User `json:"git,omitzero"`
	// ExpiresAt is when the server stops the sandbox; zero means never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Running says that a client has started the sandbox and no client has stopped it. If
	// it then has no supervisor, the supervisor has failed.
	Running   bool      `json:"running,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	StoppedAt time.Time `json:"stopped_at,omitzero"`
	// Failure is the reason why the last start failed, or "".
	Failure string `json:"failure,omitempty"`
}

// SentRule is a rule with the numbers of the API's enums; 0 is an omitted one.
type SentRule struct {
	Pattern    string `json:"pattern"`
	Type       int32  `json:"type,omitempty"`
	Permission int32  `json:"permission,omitempty"`
	Priority   int32  `json:"priority,omitempty"`
	Origin     int32  `json:"origin,omitempty"`
	Own        bool   `json:"own,omitempty"`
	Redact     int32  `json:"redact,omitempty"`
	Substitute string `json:"substitute,omitempty"`
	// Keep and KeepKeys are of rules of mounts, of which the record has no rules as they were sent.
	Keep     bool     `json:"keep,omitempty"`
	KeepKeys []string `json:"keep_keys,omitempty"`
}

func (s *Served) clone() *Served {
	if s == nil {
		return nil
	}
	c := *s
	c.Sent = slices.Clone(s.Sent)
	for i, r := range c.Sent {
		c.Sent[i].KeepKeys = slices.Clone(r.KeepKeys)
	}
	c.Labels = maps.Clone(s.Labels)
	return &c
}

// uploadedFiles is the name of an uploaded codebase's files in its directory.
const uploadedFiles = "files"

// IsUploaded reports whether the sandbox's source is an uploaded codebase. Only the server
// changes such a codebase, because it counts its files.
func (r *Record) IsUploaded() bool {
	path := string(r.Source.Path)
	return r.Served != nil && filepath.Base(path) == uploadedFiles && filepath.Base(filepath.Dir(path)) == r.Served.CodebaseID
}

// IsExpired reports whether a server's sandbox has expired.
func (r *Record) IsExpired(now time.Time) bool {
	return r.Served != nil && !r.Served.ExpiresAt.IsZero() && !now.Before(r.Served.ExpiresAt)
}

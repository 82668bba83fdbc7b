package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Record is a line of a log.
type Record struct {
	Version int
	Seq     uint64 // from 1, incremented with each record
	Time    time.Time
	Sandbox Text // name
	ID      Text
	// CodebaseID and UserID are empty unless the sandbox is a server's.
	CodebaseID, UserID Text
	Event              Event // one of this package's types, by value
	Prev               Hash  // hash of the previous record, zero for the first
	Hash               Hash
	Raw                []byte // the line without its newline; for a Malformed up to 4 MiB. Valid only during the call of do.
	Offset             int64  // of the line in the file
	Line               int    // from 1
}

// timeFormat has a fixed width, so that sorting lines sorts by time.
const timeFormat = "2006-01-02T15:04:05.000000000Z"

// header has the first keys of each record.
type header struct {
	V          int    `json:"v"`
	Seq        uint64 `json:"seq"`
	Time       string `json:"time"`
	Sandbox    Text   `json:"sandbox"`
	ID         Text   `json:"id"`
	Event      Kind   `json:"event"`
	CodebaseID Text   `json:"codebase_id,omitempty"`
	UserID     Text   `json:"user_id,omitempty"`
	Prev       string `json:"prev,omitempty"` // only set when a record is read
}

// encoded is an event prepared for a record.
type encoded struct {
	kind  Kind
	time  time.Time
	body  []byte // "{}" or `{"key":…}`
	event Event  // set if a budget may have to shrink the body, else nil

	rule     Text // of refusals, for their counts
	refusals int
}

// encode encodes ev, shortened to the maximum size of a record.
func encode(ev Event, at time.Time) (encoded, error) {
	body, err := marshal(Bound(ev))
	if err != nil {
		return encoded{}, errdefs.New(errdefs.Invalid, "audit %s: %w", ev.Kind(), err)
	}
	if _, known := decoders[ev.Kind()]; !known {
		return encoded{}, errdefs.New(errdefs.Invalid, "audit %s: not an event to write", ev.Kind())
	}
	e := encoded{kind: ev.Kind(), time: at.UTC(), body: body}
	if d, ok := ev.(PermissionDenied); ok {
		e.refusals = max(d.Count, 1)
		if len(d.Rule) <= maxPath {
			e.rule = d.Rule
		}
	}
	if d, ok := ev.(NetworkDenied); ok {
		e.refusals = max(d.Count, 1)
	}
	if len(body) > maxReservedBody && classes[e.kind] != detail {
		e.event = ev
	}
	return e, nil
}

// Bound drops the items of lists that a record has no room for, and counts them.
func Bound(ev Event) Event { return bound(ev, maxList) }

// bound drops the items of lists beyond the given bytes, and counts them.
func bound(ev Event, bytes int) Event {
	room := budget(bytes)
	n := make([]int64, 4)
	switch e := ev.(type) {
	case SandboxCreated:
		e.Mounts, n[0] = fit(&room, e.Mounts)
		e.Rules, n[1] = fit(&room, e.Rules)
		e.RulesOmitted += n[0] + n[1]
		e.Rules = orEmpty(e.Rules)
		return e
	case SandboxStarted:
		e.AllowNet, _ = fit(&room, e.AllowNet)
		e.Scratch, _ = fit(&room, e.Scratch)
		e.Mounts, n[0] = fit(&room, e.Mounts)
		e.MountsOmitted += n[0]
		return e
	case HostsChanged:
		e.Granted, n[0] = fit(&room, e.Granted)
		e.Revoked, n[1] = fit(&room, e.Revoked)
		e.AllowNet, n[2] = fit(&room, e.AllowNet)
		e.Omitted += n[0] + n[1] + n[2]
		e.AllowNet = orEmpty(e.AllowNet)
		return e
	case PolicyChanged:
		e.Rules, n[0] = fit(&room, e.Rules)
		e.RulesOmitted += n[0]
		e.Rules = orEmpty(e.Rules)
		return e
	case PermissionDenied:
		if len(Text(e.Path).escape()) > maxPath {
			e.PathSHA256 = fmt.Sprintf("%x", sha256.Sum256([]byte(e.Path)))
		}
		return e
	case CommandExecuted:
		e.Argv, n[0] = fit(&room, e.Argv)
		e.ArgvOmitted += n[0]
		e.Argv = orEmpty(e.Argv)
		return e
	case FileChanged:
		e.Created, n[0] = fit(&room, e.Created)
		e.Modified, n[1] = fit(&room, e.Modified)
		e.Deleted, n[2] = fit(&room, e.Deleted)
		e.Renamed, n[3] = fit(&room, e.Renamed)
		e.Omitted += n[0] + n[1] + n[2] + n[3]
		return e
	case Applied:
		e.Paths, n[0] = fit(&room, e.Paths)
		e.Refused, n[1] = fit(&room, e.Refused)
		e.Overwrote, n[2] = fit(&room, e.Overwrote)
		e.Merged, n[3] = fit(&room, e.Merged)
		e.Omitted += n[0] + n[1] + n[2] + n[3]
		e.Paths = orEmpty(e.Paths)
		return e
	case Discarded:
		e.Paths, n[0] = fit(&room, e.Paths)
		e.Omitted += n[0]
		e.Paths = orEmpty(e.Paths)
		return e
	case Merged:
		e.Paths, n[0] = fit(&room, e.Paths)
		e.Omitted += n[0]
		e.Paths = orEmpty(e.Paths)
		return e
	case Undone:
		e.Paths, n[0] = fit(&room, e.Paths)
		e.Omitted += n[0]
		e.Paths = orEmpty(e.Paths)
		return e
	}
	return ev
}

// orEmpty makes nil an empty JSON array instead of null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

const hashKey = `,"hash":"`

// line returns the record of e that follows prev, with its newline.
func (e encoded) line(of *Options, prev Head) ([]byte, Head, error) {
	head, err := marshal(header{
		V: SchemaVersion, Seq: prev.Seq + 1, Time: e.time.Format(timeFormat), Sandbox: Text(of.Sandbox), ID: Text(of.ID), Event: e.kind,
		CodebaseID: Text(of.CodebaseID), UserID: Text(of.UserID),
	})
	if err != nil {
		return nil, Head{}, errdefs.New(errdefs.Internal, "audit %s: %w", e.kind, err)
	}
	b := bytes.NewBuffer(head[:len(head)-1])
	if fields := e.body[1 : len(e.body)-1]; len(fields) > 0 {
		b.WriteByte(',')
		b.Write(fields)
	}
	fmt.Fprintf(b, `,"prev":"%s"`, prev.Hash)
	next := Head{Seq: prev.Seq + 1, Hash: sha256.Sum256(b.Bytes())}
	b.WriteString(hashKey + next.Hash.String() + "\"}\n")
	if b.Len() > maxLine {
		return nil, Head{}, errdefs.New(errdefs.Internal, "audit %s: record of %d bytes is above %d", e.kind, b.Len(), maxLine)
	}
	return b.Bytes(), next, nil
}

// parse reads a line without its newline. Errors: Invalid, also for a wrong hash.
func parse(line []byte) (Record, error) {
	const tail = len(hashKey) + 2*sha256.Size + len(`"}`)
	if len(line) < tail || len(line) >= maxLine || !bytes.HasPrefix(line[len(line)-tail:], []byte(hashKey)) {
		return Record{}, errdefs.New(errdefs.Invalid, "not a record")
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return Record{}, errdefs.New(errdefs.Invalid, "not a record: %w", err)
	}
	hash, ok := parseHash(string(line[len(line)-tail+len(hashKey) : len(line)-len(`"}`)]))
	if !ok || hash != sha256.Sum256(line[:len(line)-tail]) {
		return Record{}, errdefs.New(errdefs.Invalid, "its hash does not match its text")
	}
	prev, ok := parseHash(h.Prev)
	if !ok {
		return Record{}, errdefs.New(errdefs.Invalid, "it has no hash of the previous record")
	}
	at, err := time.Parse(timeFormat, h.Time)
	if err != nil {
		return Record{}, errdefs.New(errdefs.Invalid, "not a record: %w", err)
	}
	event, err := decode(h, line)
	if err != nil {
		return Record{}, errdefs.New(errdefs.Invalid, "event %s: %w", h.Event, err)
	}
	return Record{
		Version: h.V, Seq: h.Seq, Time: at, Sandbox: h.Sandbox, ID: h.ID, CodebaseID: h.CodebaseID, UserID: h.UserID,
		Event: event, Prev: prev, Hash: hash, Raw: line,
	}, nil
}

var decoders = map[Kind]func(line []byte) (Event, error){
	KindSandboxCreated:        decodeAs[SandboxCreated],
	KindSandboxStarted:        decodeAs[SandboxStarted],
	KindCommandExecuted:       decodeAs[CommandExecuted],
	KindPermissionDenied:      decodeAs[PermissionDenied],
	KindFileChanged:           decodeAs[FileChanged],
	KindResourceLimitExceeded: decodeAs[ResourceLimitExceeded],
	KindNetworkAllowed:        decodeAs[NetworkAllowed],
	KindNetworkDenied:         decodeAs[NetworkDenied],
	KindPortConnected:         decodeAs[PortConnected],
	KindHostsChanged:          decodeAs[HostsChanged],
	KindPolicyChanged:         decodeAs[PolicyChanged],
	KindAccessAsked:           decodeAs[AccessAsked],
	KindAccessAnswered:        decodeAs[AccessAnswered],
	KindAsksSuppressed:        decodeAs[AsksSuppressed],
	KindLocksChanged:          decodeAs[LocksChanged],
	KindMessagePosted:         decodeAs[MessagePosted],
	KindApplyRequested:        decodeAs[ApplyRequested],
	KindApplied:               decodeAs[Applied],
	KindDiscarded:             decodeAs[Discarded],
	KindUndone:                decodeAs[Undone],
	KindMerged:                decodeAs[Merged],
	KindSessionCreated:        decodeAs[SessionCreated],
	KindSessionClosed:         decodeAs[SessionClosed],
	KindSandboxRebased:        decodeAs[SandboxRebased],
	KindSnapshotChanged:       decodeAs[SnapshotChanged],
	KindChangesImported:       decodeAs[ChangesImported],
	KindSandboxStopped:        decodeAs[SandboxStopped],
	KindSandboxDestroyed:      decodeAs[SandboxDestroyed],
	KindEventsOmitted:         decodeAs[EventsOmitted],
	KindArchived:              decodeAs[Archived],
	KindGap:                   decodeAs[Gap],
}

func decodeAs[E Event](line []byte) (Event, error) {
	var e E
	err := json.Unmarshal(line, &e)
	return e, err
}

func decode(h header, line []byte) (Event, error) {
	as, known := decoders[h.Event]
	if !known || h.V != SchemaVersion {
		return Unknown{Name: h.Event}, nil
	}
	return as(line)
}

// IsKind reports whether this version writes records of the kind k.
func IsKind(k Kind) bool {
	_, known := decoders[k]
	return known
}

// Kinds returns the kinds of which this version writes records, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(decoders)) }

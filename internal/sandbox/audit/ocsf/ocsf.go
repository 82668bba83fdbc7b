// Package ocsf writes the records of audit logs as events of the Open Cybersecurity Schema
// Framework, version 1.3.0, with its profile security_control. docs/audit.md says which event has
// which class.
//
// Each record becomes one event, or one for each path of a list. What is not a record, and an event
// of a later version, become a Base Event with the line as it is. The package does no I/O.
package ocsf

import (
	"fmt"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// Version is that of the schema.
const Version = "1.3.0"

// Event is an event of the schema. Its fields have the schema's names.
type Event struct {
	ActivityID    int         `json:"activity_id"`
	ActivityName  string      `json:"activity_name"`
	CategoryUID   int         `json:"category_uid"`
	CategoryName  string      `json:"category_name"`
	ClassUID      int         `json:"class_uid"`
	ClassName     string      `json:"class_name"`
	TypeUID       int         `json:"type_uid"`
	Time          int64       `json:"time"` // milliseconds
	SeverityID    int         `json:"severity_id"`
	Severity      string      `json:"severity"`
	StatusID      int         `json:"status_id,omitempty"`
	Status        string      `json:"status,omitempty"`
	StatusDetail  audit.Text  `json:"status_detail,omitempty"`
	ActionID      int         `json:"action_id,omitempty"`
	Action        string      `json:"action,omitempty"`
	DispositionID int         `json:"disposition_id,omitempty"`
	Disposition   string      `json:"disposition,omitempty"`
	Count         int         `json:"count,omitempty"`
	Duration      int64       `json:"duration,omitempty"` // milliseconds
	Message       string      `json:"message,omitempty"`
	Metadata      metadata    `json:"metadata"`
	Device        *device     `json:"device,omitempty"`
	Actor         *actor      `json:"actor,omitempty"`
	File          *file       `json:"file,omitempty"`
	FileResult    *file       `json:"file_result,omitempty"`
	Process       *process    `json:"process,omitempty"`
	ExitCode      *int        `json:"exit_code,omitempty"`
	DstEndpoint   *endpoint   `json:"dst_endpoint,omitempty"`
	Traffic       *traffic    `json:"traffic,omitempty"`
	Connection    *connection `json:"connection_info,omitempty"`
	App           *product    `json:"app,omitempty"`
	Entity        *entity     `json:"entity,omitempty"`
	Policy        *policy     `json:"policy,omitempty"`
	RawData       string      `json:"raw_data,omitempty"`
}

type (
	metadata struct {
		Version        string   `json:"version"`
		Product        product  `json:"product"`
		Profiles       []string `json:"profiles,omitempty"`
		UID            string   `json:"uid,omitempty"`
		Sequence       uint64   `json:"sequence,omitempty"`
		EventCode      string   `json:"event_code"`
		CorrelationUID string   `json:"correlation_uid,omitempty"`
		LogName        string   `json:"log_name"`
		LogVersion     string   `json:"log_version"`
	}
	product struct {
		Name       string `json:"name"`
		VendorName string `json:"vendor_name"`
		Version    string `json:"version,omitempty"`
	}
	device struct {
		TypeID int        `json:"type_id"`
		Type   string     `json:"type"`
		Name   audit.Text `json:"name"`
		UID    audit.Text `json:"uid"`
	}
	actor struct {
		AppName string   `json:"app_name"`
		Process *process `json:"process,omitempty"`
		User    *user    `json:"user,omitempty"`
	}
	user struct {
		UID audit.Text `json:"uid"`
	}
	process struct {
		PID     int        `json:"pid,omitempty"`
		Name    audit.Text `json:"name,omitempty"`
		CmdLine string     `json:"cmd_line,omitempty"`
		UID     string     `json:"uid,omitempty"`
	}
	file struct {
		Name   audit.Text `json:"name"`
		Path   audit.Text `json:"path"`
		TypeID int        `json:"type_id"`
	}
	endpoint struct {
		Name     string     `json:"name,omitempty"`
		Hostname audit.Text `json:"hostname,omitempty"`
		IP       string     `json:"ip,omitempty"`
		Port     uint16     `json:"port,omitempty"`
	}
	traffic struct {
		BytesOut int64 `json:"bytes_out"`
		BytesIn  int64 `json:"bytes_in"`
		Bytes    int64 `json:"bytes"`
	}
	connection struct {
		DirectionID  int    `json:"direction_id"`
		ProtocolName string `json:"protocol_name"`
	}
	entity struct {
		Name string     `json:"name"`
		Type string     `json:"type"`
		UID  audit.Text `json:"uid,omitempty"`
	}
	policy struct {
		Name audit.Text `json:"name"`
		Desc audit.Text `json:"desc,omitempty"`
	}
)

// class is a class of the schema, with its category.
type class struct {
	uid      int
	name     string
	category string
}

// The classes that are used.
var (
	baseEvent     = class{0, "Base Event", "Uncategorized"}
	fileSystem    = class{1001, "File System Activity", "System Activity"}
	processes     = class{1007, "Process Activity", "System Activity"}
	entityManaged = class{3004, "Entity Management", "Identity & Access Management"}
	network       = class{4001, "Network Activity", "Network Activity"}
	lifecycle     = class{6002, "Application Lifecycle", "Application Activity"}
)

// activity is an activity of a class.
type activity struct {
	id   int
	name string
}

// severity is how grave an event is.
type severity struct {
	id   int
	name string
}

var (
	informational = severity{1, "Informational"}
	low           = severity{2, "Low"}
	medium        = severity{3, "Medium"}
	high          = severity{4, "High"}
)

// other is the activity that the class has no word for.
func other(name string) activity { return activity{99, name} }

// Events returns the events of a record. version is that of agentfense.
func Events(r audit.Record, version string) []Event {
	m, mapped := mappings[r.Event.Kind()]
	if !mapped {
		e := baseOf(r, version, baseEvent, other(string(r.Event.Kind())), medium)
		e.RawData = strings.ToValidUTF8(string(r.Raw), "\ufffd")
		return []Event{e}
	}
	base := baseOf(r, version, m.class, m.activity, m.severity)
	events := m.fill(base, r)
	for i := range events {
		if len(events) > 1 {
			events[i].Metadata.UID += fmt.Sprintf(":%d", i+1)
		}
	}
	return events
}

// baseOf is what all events have.
func baseOf(r audit.Record, version string, c class, a activity, s severity) Event {
	e := Event{
		ClassUID: c.uid, ClassName: c.name, CategoryUID: c.uid / 1000, CategoryName: c.category,
		SeverityID: s.id, Severity: s.name,
		Metadata: metadata{
			Version: Version, Product: product{"agentfense", "agentfense", version}, Profiles: []string{"security_control"},
			EventCode: string(r.Event.Kind()), LogName: "audit", LogVersion: fmt.Sprint(audit.SchemaVersion),
		},
		Actor: &actor{AppName: "agentfense"},
	}
	if !r.Time.IsZero() {
		e.Time = r.Time.UnixMilli()
		e.Metadata.UID, e.Metadata.Sequence = fmt.Sprintf("%s:%d", vpath.Escape(string(r.ID)), r.Seq), r.Seq
		e.Device = &device{TypeID: 99, Type: "Sandbox", Name: r.Sandbox, UID: r.ID}
	}
	if r.UserID != "" {
		e.Actor.User = &user{r.UserID}
	}
	e.act(a)
	return e
}

// act sets the activity.
func (e *Event) act(a activity) {
	e.ActivityID, e.ActivityName = a.id, a.name
	e.TypeUID = e.ClassUID*100 + a.id
}

// allow and deny set the outcome.
func (e *Event) allow() {
	e.StatusID, e.Status = 1, "Success"
	e.ActionID, e.Action, e.DispositionID, e.Disposition = 1, "Allowed", 1, "Allowed"
}

func (e *Event) deny() {
	e.StatusID, e.Status = 2, "Failure"
	e.ActionID, e.Action, e.DispositionID, e.Disposition = 2, "Denied", 2, "Blocked"
}

// succeed sets a status alone.
func (e *Event) succeed(ok bool) {
	e.StatusID, e.Status = 1, "Success"
	if !ok {
		e.StatusID, e.Status = 2, "Failure"
	}
}

package export

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// OTLPPath is the path of the logs of a collector (OTLP specification, "OTLP/HTTP Request").
const OTLPPath = "/v1/logs"

// maxBody bounds the text of a record, and maxAttribute that of one of its fields, in bytes.
const (
	maxBody      = 64 << 10
	maxAttribute = 4 << 10
)

// OTLP sends records as log records of OpenTelemetry, in JSON over HTTP.
type OTLP struct {
	endpoint *Endpoint
	version  string
}

// NewOTLP returns a sink. version is that of agentfense.
func NewOTLP(to *Endpoint, version string) *OTLP { return &OTLP{to, version} }

// The types of a request: the JSON form of ExportLogsServiceRequest (opentelemetry-proto,
// logs_service.proto), in which 64 bit integers are strings.
type (
	otlpRequest struct {
		ResourceLogs []otlpResource `json:"resourceLogs"`
	}
	otlpResource struct {
		Resource  otlpAttributes `json:"resource"`
		ScopeLogs []otlpScope    `json:"scopeLogs"`
	}
	otlpAttributes struct {
		Attributes []otlpAttribute `json:"attributes"`
	}
	otlpScope struct {
		Scope      otlpName     `json:"scope"`
		LogRecords []otlpRecord `json:"logRecords"`
	}
	otlpName struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	otlpRecord struct {
		TimeUnixNano   string          `json:"timeUnixNano"`
		SeverityNumber int             `json:"severityNumber"`
		SeverityText   string          `json:"severityText"`
		EventName      string          `json:"eventName"`
		Body           otlpValue       `json:"body"`
		Attributes     []otlpAttribute `json:"attributes"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpValue struct {
		String *string  `json:"stringValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
	}
)

func otlpString(s string) otlpValue { return otlpValue{String: &s} }

// Send sends records to the collector. Errors: as Sink.
func (o *OTLP) Send(ctx context.Context, records []audit.Record) (int, error) {
	body, err := json.Marshal(o.request(records))
	if err != nil {
		return len(records), errdefs.New(errdefs.Internal, "encode audit records: %w", err)
	}
	answer, err := o.endpoint.post(ctx, body)
	if err != nil {
		return len(records), err
	}
	return rejected(answer, len(records))
}

// rejected reads how many records the collector refused of those that were sent. An answer that
// is not understood refuses none.
func rejected(answer []byte, sent int) (int, error) {
	var said struct {
		PartialSuccess struct {
			RejectedLogRecords json.Number `json:"rejectedLogRecords"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &said) != nil {
		return 0, nil
	}
	n, err := said.PartialSuccess.RejectedLogRecords.Int64()
	if err != nil || n <= 0 {
		return 0, nil
	}
	return int(min(n, int64(sent))), errdefs.New(errdefs.Precondition, "the collector refused them")
}

func (o *OTLP) request(records []audit.Record) otlpRequest {
	list := make([]otlpRecord, len(records))
	for i, r := range records {
		list[i] = otlpOf(r)
	}
	return otlpRequest{[]otlpResource{{
		Resource: otlpAttributes{[]otlpAttribute{
			{"service.name", otlpString("agentfense")}, {"service.version", otlpString(o.version)},
		}},
		ScopeLogs: []otlpScope{{
			Scope:      otlpName{"agentfense.audit", strconv.Itoa(audit.SchemaVersion)},
			LogRecords: list,
		}},
	}}}
}

// otlpOf is one record: its line as the body, and its fields as attributes.
func otlpOf(r audit.Record) otlpRecord {
	kind := r.Event.Kind()
	number, text := severity(kind)
	line := strings.ToValidUTF8(string(r.Raw), "\ufffd")
	log := otlpRecord{
		SeverityNumber: number, SeverityText: text, EventName: "agentfense.audit." + string(kind),
		Body: otlpString(clip(line, maxBody)), Attributes: fields(r.Raw),
	}
	if !r.Time.IsZero() {
		log.TimeUnixNano = strconv.FormatInt(r.Time.UnixNano(), 10)
	}
	if len(line) > maxBody {
		cut := true
		log.Attributes = append(log.Attributes, otlpAttribute{"agentfense.audit.cut", otlpValue{Bool: &cut}})
	}
	return log
}

// severity is the SeverityNumber of OpenTelemetry's log data model, with its name.
func severity(k audit.Kind) (int, string) {
	switch k {
	case audit.KindPermissionDenied, audit.KindNetworkDenied, audit.KindResourceLimitExceeded, audit.KindEventsOmitted:
		return 13, "WARN"
	case audit.KindGap, audit.KindMalformed:
		return 17, "ERROR"
	}
	return 9, "INFO"
}

// fields are the attributes of a record: its fields that are not lists or objects, by name.
func fields(line []byte) []otlpAttribute {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var all map[string]any
	if decoder.Decode(&all) != nil {
		return []otlpAttribute{} // a line that is not a record
	}
	list := []otlpAttribute{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if v, ok := valueOf(all[name]); ok {
			list = append(list, otlpAttribute{"agentfense.audit." + name, v})
		}
	}
	return list
}

func valueOf(field any) (otlpValue, bool) {
	switch v := field.(type) {
	case string:
		return otlpString(clip(v, maxAttribute)), true
	case bool:
		return otlpValue{Bool: &v}, true
	case json.Number:
		if _, err := v.Int64(); err == nil {
			text := v.String()
			return otlpValue{Int: &text}, true
		}
		f, err := v.Float64()
		return otlpValue{Double: &f}, err == nil
	}
	return otlpValue{}, false
}

// clip bounds a text in bytes.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}

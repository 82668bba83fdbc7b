package cli

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/audit/export"
)

// exportOptions are the flags that send a sandbox's audit records elsewhere while a command runs.
type exportOptions struct {
	OTLP    string // URL, or otlpFromEnv
	Webhook string
	When    []string
}

// otlpFromEnv as --otlp takes the collector from OpenTelemetry's own variables.
const otlpFromEnv = "env"

// A command's end waits for a receiver that takes records for as long as exportEnd, and for one
// in trouble for as long as troublePatience. What they have not taken then stays in the log.
const (
	exportEnd       = time.Minute
	troublePatience = 2 * time.Second
)

// auditExportPatience is how long audit --otlp tries to send some records.
const auditExportPatience = 30 * time.Second

// followPause is how long it takes to look again at a log that was archived meanwhile.
const followPause = 200 * time.Millisecond

func (o *exportOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.OTLP, "otlp", "", "send the audit records to the OpenTelemetry collector at `URL` (OTLP/HTTP); env: as OTEL_EXPORTER_OTLP_* say")
	f.StringVar(&o.Webhook, "alert-webhook", "", "post to `URL` when a threshold of --alert-when is reached")
	f.StringArrayVar(&o.When, "alert-when", nil, "`EVENT=COUNT/DURATION` that raises an alert (default permission_denied=100/1m and network_denied=20/1m)")
}

// exporter is a receiver, with its name for people.
type exporter struct {
	name string
	sink export.Sink
	to   *export.Endpoint
	// counts says what the sink drops: records or alerts.
	counts string
}

// exporters are the receivers that the flags name. Errors: Invalid.
func (o *exportOptions) exporters(e *env) ([]exporter, error) {
	var list []exporter
	if o.OTLP != "" {
		to, err := o.collector(e)
		if err != nil {
			return nil, err
		}
		list = append(list, exporter{"--otlp", export.NewOTLP(to, executable.Version()), to, "record"})
	}
	if o.Webhook == "" && len(o.When) > 0 {
		return nil, usageError{errdefs.New(errdefs.Invalid, "--alert-when: needs --alert-webhook URL")}
	}
	if o.Webhook != "" {
		alerts, to, err := o.alerts()
		if err != nil {
			return nil, err
		}
		list = append(list, exporter{"--alert-webhook", alerts, to, "alert"})
	}
	return list, nil
}

func (o *exportOptions) collector(e *env) (*export.Endpoint, error) {
	options := export.EndpointOptions{URL: o.OTLP}
	if o.OTLP == otlpFromEnv {
		var err error
		if options, err = otlpVariables(e.getenv); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "--otlp env: %w", err)
		}
	}
	to, err := export.NewEndpoint(options, export.OTLPPath)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--otlp: %w", err)
	}
	return to, nil
}

// otlpVariables reads the variables of the OpenTelemetry specification (OTLP exporter
// configuration), those for logs before the general ones.
func otlpVariables(getenv func(string) string) (o export.EndpointOptions, err error) {
	get := func(name string) string {
		if v := getenv("OTEL_EXPORTER_OTLP_LOGS_" + name); v != "" {
			return v
		}
		return getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	o.URL = getenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
	if base := getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); o.URL == "" && base != "" {
		o.URL = strings.TrimSuffix(base, "/") + export.OTLPPath
	}
	if o.URL == "" {
		return o, errdefs.New(errdefs.Invalid, "neither OTEL_EXPORTER_OTLP_LOGS_ENDPOINT nor OTEL_EXPORTER_OTLP_ENDPOINT is set")
	}
	if protocol := get("PROTOCOL"); protocol == "grpc" {
		return o, errdefs.New(errdefs.Invalid, "OTEL_EXPORTER_OTLP_PROTOCOL is grpc: only OTLP/HTTP with JSON is supported")
	}
	if o.Header, err = export.ParseHeaderVariable(get("HEADERS")); err != nil {
		return o, errdefs.New(errdefs.Invalid, "OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	if file := get("CERTIFICATE"); file != "" {
		const maxCA = 1 << 20
		if o.CA, err = safefs.ReadNamed(file, maxCA); err != nil {
			return o, errdefs.New(errdefs.Invalid, "OTEL_EXPORTER_OTLP_CERTIFICATE %s: %w", vpath.Quote(file), err)
		}
	}
	return o, nil
}

func (o *exportOptions) alerts() (*export.Alerts, *export.Endpoint, error) {
	to, err := export.NewEndpoint(export.EndpointOptions{URL: o.Webhook}, "/")
	if err != nil {
		return nil, nil, errdefs.New(errdefs.Invalid, "--alert-webhook: %w", err)
	}
	thresholds := export.DefaultThresholds()
	if len(o.When) > 0 {
		thresholds = nil
	}
	for _, text := range o.When {
		t, err := export.ParseThreshold(text)
		if err != nil {
			return nil, nil, errdefs.New(errdefs.Invalid, "--alert-when: %w", err)
		}
		thresholds = append(thresholds, t)
	}
	return export.NewAlerts(to, thresholds, time.Now), to, nil
}

// exporting sends the records of one sandbox while a command runs. Nil sends nothing.
type exporting struct {
	e     *env
	b     backend.Backend
	sb    backend.Sandbox
	feeds []*feed
	stop  context.CancelFunc
}

// feed reads the log for one receiver, so that a slow one holds up no other.
type feed struct {
	exporter
	queue   *export.Queue
	last    uint64 // number of the last record that was added
	over    bool   // the sandbox is destroyed
	reading sync.WaitGroup
}

// startExport begins to send what the log has behind the record after.
func (e *env) startExport(ctx context.Context, to []exporter, b backend.Backend, sb backend.Sandbox, after uint64) *exporting {
	if len(to) == 0 {
		return nil
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	x := &exporting{e: e, b: b, sb: sb, stop: stop}
	for _, one := range to {
		f := &feed{exporter: one, queue: export.NewQueue(one.sink), last: after}
		x.feeds = append(x.feeds, f)
		f.reading.Go(func() { f.follow(following, b, sb.Ref()) })
	}
	return x
}

// follow adds records until ctx ends. What it cannot read, end reads.
func (f *feed) follow(ctx context.Context, b backend.Backend, name string) {
	for ctx.Err() == nil && !f.over {
		if err := b.Audit(ctx, name, f.last, true, f.adder(ctx)); !errdefs.Is(err, errdefs.Precondition) {
			return
		}
		select { // the log was archived
		case <-time.After(followPause):
		case <-ctx.Done():
		}
	}
}

func (f *feed) adder(ctx context.Context) func(audit.Record) error {
	return func(r audit.Record) error {
		if err := f.queue.Add(ctx, r); err != nil {
			return err
		}
		f.last = max(f.last, r.Seq)
		_, f.over = r.Event.(audit.SandboxDestroyed)
		return nil
	}
}

// end sends what is left, for as long as it may take, and says what was not sent.
func (x *exporting) end(ctx context.Context) {
	if x == nil {
		return
	}
	x.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportEnd)
	defer cancel()
	var all sync.WaitGroup
	said := make([]string, len(x.feeds))
	for i, f := range x.feeds {
		all.Go(func() { said[i] = x.endFeed(ctx, f) })
	}
	all.Wait()
	for _, text := range said {
		if text != "" {
			x.e.say("%s", text)
		}
	}
}

// endFeed returns what is to be said about a receiver, "" if it took all.
func (x *exporting) endFeed(ctx context.Context, f *feed) string {
	f.reading.Wait()
	report, err := f.queue.Close(ctx, troublePatience, func(ctx context.Context) error { return x.readRest(ctx, f) })
	f.to.Close()
	text := f.name + ": "
	switch {
	case report.Dropped > 0:
		text += plural(report.Dropped, f.counts)
		if err != nil {
			text += ", and what came later,"
		}
		return text + " not sent: " + oneLine(report.Err) + "; the audit log has all"
	case err != nil:
		return text + "the last records were not sent: " + oneLine(err)
	}
	return ""
}

// readRest adds what the log has beyond the last record, of a removed sandbox too.
func (x *exporting) readRest(ctx context.Context, f *feed) error {
	if f.over {
		return nil
	}
	err := x.b.Audit(ctx, x.sb.Ref(), f.last, false, f.adder(ctx))
	if errdefs.Is(err, errdefs.NotFound) {
		err = x.b.Audit(ctx, string(x.sb.Record.ID), f.last, false, f.adder(ctx))
	}
	return err
}

// exportAudit sends the records of a log. It stops at the first that are not taken.
func (e *env) exportAudit(ctx context.Context, b backend.Backend, name, url string) error {
	to, err := (&exportOptions{OTLP: url}).exporters(e)
	if err != nil {
		return err
	}
	defer to[0].to.Close()
	var batch export.Batch
	sent := 0
	send := func() error {
		limited, cancel := context.WithTimeout(ctx, auditExportPatience)
		defer cancel()
		dropped, err := export.Deliver(limited, to[0].sink, batch.Records, nil)
		sent += len(batch.Records) - dropped
		batch.Reset()
		if err != nil {
			return errdefs.New(errdefs.KindOf(err), "--otlp: %s not sent: %w", plural(dropped, "record"), err)
		}
		return nil
	}
	err = b.Audit(ctx, name, 0, false, func(r audit.Record) error {
		batch.Add(r)
		if !batch.IsFull() {
			return nil
		}
		return send()
	})
	if err == nil && len(batch.Records) > 0 {
		err = send()
	}
	e.say("--otlp: %s sent", plural(sent, "record"))
	return err
}

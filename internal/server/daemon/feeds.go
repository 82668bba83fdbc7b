package daemon

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit/export"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/auditfeed"
)

// positionsFile, in the state directory, keeps how far the collector has taken the audit logs.
const positionsFile = "otlp-positions.json"

// startFeeds begins to send the audit logs to the receivers of the configuration. end waits until
// they have what was written so far, for a moment. Errors: Invalid for a file that cannot be read;
// Precondition.
func startFeeds(o Options) (end func(), err error) {
	// The URLs and the names of files are no business of the programs that the server starts.
	for _, key := range config.AuditExportKeys {
		if err := os.Unsetenv(config.Variable(key)); err != nil {
			return nil, errdefs.New(errdefs.Internal, "%s: %w", config.Variable(key), err)
		}
	}
	var feeds []*auditfeed.Feed
	x := o.Config.Export
	add := func(name, positions string, to *export.Endpoint, sink export.Sink) error {
		f, err := auditfeed.New(auditfeed.Options{
			Name: name + " " + to.Host(), Sink: sink, Logs: o.Home.AuditLogs, Positions: positions, Log: o.Log,
		})
		feeds = append(feeds, f)
		return err
	}
	if x.OTLPURL != "" {
		to, err := collector(x)
		if err == nil {
			err = add("the OpenTelemetry collector", filepath.Join(o.Home.Dir(), positionsFile), to, export.NewOTLP(to, executable.Version()))
		}
		if err != nil {
			return nil, err
		}
	}
	if x.AlertWebhook != "" {
		to, err := export.NewEndpoint(export.EndpointOptions{URL: x.AlertWebhook}, "/")
		if err == nil {
			err = add("the webhook for alerts", "", to, export.NewAlerts(to, x.AlertWhen, time.Now))
		}
		if err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, f := range feeds {
		running.Go(func() { f.Run(ctx) })
	}
	return func() {
		stop()
		running.Wait()
	}, nil
}

// maxExportFile bounds the files of headers and authorities, in bytes.
const maxExportFile = 1 << 20

// collector is the receiver of audit.otlp_url.
func collector(x config.AuditExport) (*export.Endpoint, error) {
	options := export.EndpointOptions{URL: x.OTLPURL}
	if x.OTLPHeaderFile != "" {
		text, err := safefs.ReadNamed(x.OTLPHeaderFile, maxExportFile)
		if err == nil {
			options.Header, err = export.ParseHeader(text)
		}
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "audit.otlp_header_file %s: %w", x.OTLPHeaderFile, err)
		}
	}
	if x.OTLPCAFile != "" {
		var err error
		if options.CA, err = safefs.ReadNamed(x.OTLPCAFile, maxExportFile); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "audit.otlp_ca_file %s: %w", x.OTLPCAFile, err)
		}
	}
	to, err := export.NewEndpoint(options, export.OTLPPath)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "audit.otlp_url: %w", err)
	}
	return to, nil
}

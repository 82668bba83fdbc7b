package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// auditNet says what left a sandbox over the network, and what was refused.
func (e *env) auditNet(ctx context.Context, b backend.Backend, name string, asJSON bool) error {
	var report present.NetReport
	err := b.Audit(ctx, name, 0, false, func(r audit.Record) error {
		report.Add(r)
		return nil
	})
	if err != nil {
		return err
	}
	if asJSON {
		return e.printNetJSON(&report)
	}
	return e.printNet(&report)
}

func (e *env) printNetJSON(report *present.NetReport) error {
	connections, refusals := report.Omitted()
	return e.printJSON(struct {
		SchemaVersion      int                      `json:"schema_version"`
		Hosts              []present.HostTraffic    `json:"hosts"`
		Refused            []present.RefusedTraffic `json:"refused"`
		OmittedConnections int64                    `json:"omitted_connections"`
		OmittedRefusals    int64                    `json:"omitted_refusals"`
	}{schemaVersion, report.Hosts(), report.Refused(), connections, refusals})
}

func (e *env) printNet(report *present.NetReport) error {
	hosts, refused := report.Hosts(), report.Refused()
	connections, refusals := report.Omitted()
	if len(hosts) == 0 && len(refused) == 0 && connections+refusals == 0 {
		_, err := fmt.Fprintln(e.stdout, "no connections, and no refusals")
		return err
	}
	if len(hosts) > 0 {
		if err := printTable(e.stdout, []string{"HOST", "PORT", "CONNECTIONS", "REQUESTS", "OUT", "IN", "RULE"}, trafficRows(hosts)); err != nil {
			return err
		}
	}
	if len(hosts) > 0 && len(refused) > 0 {
		fmt.Fprintln(e.stdout)
	}
	if len(refused) > 0 {
		if err := printTable(e.stdout, []string{"REFUSED", "PORT", "TIMES", "REASON"}, refusedRows(refused)); err != nil {
			return err
		}
	}
	if connections+refusals > 0 {
		fmt.Fprintf(e.stdout, "only counted, because the audit log has reached its budget: %d connections, %d refusals\n", connections, refusals)
	}
	return nil
}

func trafficRows(hosts []present.HostTraffic) [][]string {
	rows := make([][]string, 0, len(hosts))
	for _, h := range hosts {
		made := strconv.Itoa(h.Connections)
		if h.Failed > 0 {
			made += fmt.Sprintf(" (%d not made)", h.Failed)
		}
		requests := "-"
		if h.Requests > 0 {
			requests = strconv.FormatInt(h.Requests, 10)
		}
		rows = append(rows, []string{
			escape(h.Host), strconv.Itoa(int(h.Port)), made, requests,
			atLeast(h.SentBytes, h.Uncounted), atLeast(h.ReceivedBytes, h.Uncounted), escape(h.Rule),
		})
	}
	return rows
}

// atLeast writes bytes, to which those of some connections are missing.
func atLeast(bytes int64, uncounted int) string {
	if uncounted > 0 {
		return formatBytes(bytes) + " or more"
	}
	return formatBytes(bytes)
}

func refusedRows(refused []present.RefusedTraffic) [][]string {
	rows := make([][]string, 0, len(refused))
	for _, r := range refused {
		port := "-"
		if r.Port != 0 {
			port = strconv.Itoa(int(r.Port))
		}
		rows = append(rows, []string{escape(r.Host), port, strconv.Itoa(r.Count), escape(r.Reason)})
	}
	return rows
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
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
		Published          []present.PortUse        `json:"published"`
		OmittedConnections int64                    `json:"omitted_connections"`
		OmittedRefusals    int64                    `json:"omitted_refusals"`
	}{schemaVersion, report.Hosts(), report.Refused(), report.Ports(), connections, refusals})
}

func (e *env) printNet(report *present.NetReport) error {
	connections, refusals := report.Omitted()
	var tables [][][]string
	for _, t := range [][][]string{
		append([][]string{{"HOST", "PORT", "CONNECTIONS", "REQUESTS", "OUT", "IN", "RULE"}}, trafficRows(report.Hosts())...),
		append([][]string{{"PUBLISHED", "PORT", "CONNECTIONS", "OUT", "IN"}}, portRows(report.Ports())...),
		append([][]string{{"REFUSED", "PORT", "TIMES", "REASON"}}, refusedRows(report.Refused())...),
	} {
		if len(t) > 1 {
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 && connections+refusals == 0 {
		_, err := fmt.Fprintln(e.stdout, "no connections, and no refusals")
		return err
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(e.stdout)
		}
		if err := printTable(e.stdout, t[0], t[1:]); err != nil {
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
		made := madeText(h.Connections, h.Failed)
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

func portRows(ports []present.PortUse) [][]string {
	rows := make([][]string, 0, len(ports))
	for _, p := range ports {
		rows = append(rows, []string{
			fmt.Sprintf("%s:%d", p.Address, p.HostPort), strconv.Itoa(int(p.Port)), madeText(p.Connections, p.Failed),
			atLeast(p.SentBytes, p.Uncounted), atLeast(p.ReceivedBytes, p.Uncounted),
		})
	}
	return rows
}

// madeText counts connections, and those that could not be made.
func madeText(made, failed int) string {
	if failed > 0 {
		return fmt.Sprintf("%d (%d not made)", made, failed)
	}
	return strconv.Itoa(made)
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
		if r.Protocol != "" {
			port += "/" + vpath.Escape(r.Protocol)
		}
		rows = append(rows, []string{cmp.Or(escape(r.Host), vpath.Escape(r.Socket)), port, strconv.Itoa(r.Count), escape(r.Reason)})
	}
	return rows
}

package reviewui

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// maxEvents is how many different refusals and hosts the panel knows.
const maxEvents = 500

// panel shows what was refused, and which hosts were reached.
type panel struct {
	shown  bool
	events map[event]*happened
}

// event is what happened, without how often.
type event struct {
	what, why string
	refused   bool
}

type happened struct {
	times int
	last  time.Time
}

func newPanel() panel { return panel{events: map[event]*happened{}} }

func (p *panel) add(records []audit.Record) {
	for _, r := range records {
		e, times := eventOf(r)
		h := p.events[e]
		if h == nil {
			h = &happened{}
			p.events[e] = h
		}
		h.times, h.last = h.times+times, r.Time
	}
	if len(p.events) <= maxEvents {
		return
	}
	for _, e := range p.recent()[maxEvents:] {
		delete(p.events, e)
	}
}

func eventOf(r audit.Record) (event, int) {
	switch e := r.Event.(type) {
	case audit.PermissionDenied:
		why := "no rule permits it"
		switch {
		case e.Rule == "" && e.RuleSource != "": // a lock
			why = present.LocalUntil(vpath.Escape(string(e.RuleSource)))
		case e.Rule != "":
			why = fmt.Sprintf("rule %q", vpath.Escape(string(e.Rule)))
		}
		path := present.InMount(e.Mount, record.HostPath(e.Path).String())
		return event{vpath.Escape(e.Operation) + " " + path, why, true}, max(1, e.Count)
	case audit.NetworkDenied:
		if e.Socket != "" {
			return event{"get a " + vpath.Escape(e.Socket), vpath.Escape(string(e.Reason)), true}, max(1, e.Count)
		}
		return event{hostText(e.Host, e.Port), vpath.Escape(string(e.Reason)), true}, max(1, e.Count)
	case audit.NetworkAllowed:
		return event{hostText(e.Host, e.Port), "rule " + vpath.Escape(string(e.Rule)), false}, 1
	}
	return event{}, 0
}

func hostText(host audit.Text, port uint16) string {
	if port == 0 {
		return "look up " + vpath.Escape(string(host))
	}
	return fmt.Sprintf("connect %s:%d", vpath.Escape(string(host)), port)
}

// recent are the events, the last one first.
func (p *panel) recent() []event {
	list := make([]event, 0, len(p.events))
	for e := range p.events {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b event) int {
		return cmp.Or(p.events[b].last.Compare(p.events[a].last), cmp.Compare(a.what, b.what), cmp.Compare(a.why, b.why))
	})
	return list
}

// lines are what the panel shows in a height.
func (p *panel) lines(height int) []line {
	var out []line
	for _, e := range p.recent() {
		if len(out) == height {
			break
		}
		h := p.events[e]
		word := span{"reached ", "32"}
		if e.refused {
			word = span{"refused ", "31"}
		}
		out = append(out, line{{h.last.Local().Format("15:04:05 "), "90"}, word, {printable(e.what), ""}, {fmt.Sprintf(" ×%d  %s", h.times, printable(e.why)), "90"}})
	}
	if len(out) == 0 {
		out = append(out, line{{"nothing was refused, and no host was reached", "90"}})
	}
	return out
}

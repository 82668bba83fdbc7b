package cli

import (
	"fmt"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// maxHostsSaid is how many hosts a line of the summary names.
const maxHostsSaid = 5

// sayNetwork says which hosts were reached, and what was refused. It says nothing of a sandbox that
// tried nothing.
func (e *env) sayNetwork(s present.Summary) {
	var used []string
	for _, h := range s.Hosts {
		used = append(used, hostText(h))
	}
	if len(used) > 0 {
		e.say("network: %s", fewHosts(used))
	}
	var refused []string
	for _, r := range s.HostRefusals {
		refused = append(refused, refusalText(r))
	}
	if len(refused) > 0 {
		e.say("network refused: %s", fewHosts(refused))
	}
}

// fewHosts joins the first of a list, and says how many more there are.
func fewHosts(list []string) string {
	if more := len(list) - maxHostsSaid; more > 0 {
		list = append(list[:maxHostsSaid:maxHostsSaid], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

func hostText(h present.HostUse) string {
	text := fmt.Sprintf("%s %s, %s out, %s in", vpath.Escape(h.Host), plural(h.Connections, "connection"), formatBytes(h.SentBytes), formatBytes(h.ReceivedBytes))
	switch {
	case h.Connections == 0:
		return fmt.Sprintf("%s not reached, %s", vpath.Escape(h.Host), times(h.Failed))
	case h.Failed > 0:
		text += fmt.Sprintf(", not reached %s", times(h.Failed))
	}
	return text
}

func refusalText(r present.HostRefusal) string {
	text := vpath.Escape(r.Host)
	if r.Port != 0 {
		text += fmt.Sprintf(":%d", r.Port)
	}
	return fmt.Sprintf("%s %s (%s)", text, times(r.Count), vpath.Escape(r.Reason))
}

package policyfile

import (
	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/yamlfile"
)

// Network says which hosts a sandbox may reach. Without hosts it may reach none.
type Network struct {
	Allow  []Host
	Limits []NetLimit // each name once
	place
}

// place is where something is written.
type place struct {
	file yamlfile.File
	line int
}

// At returns an error at the place. Its kind is Invalid.
func (p place) At(err error) error { return p.file.At(p.line, "network: %w", err) }

// Host is a host as it is written. Load does not know what a host may be: its callers parse
// it, and refuse it with At.
type Host struct {
	Text string
	place
}

// NetLimit is a limit of the network as it is written. As of a Host, its callers parse it.
type NetLimit struct {
	Name, Value string
	place
}

// MaxHosts is the most hosts of a policy file.
const MaxHosts = 1024

func (l *loader) readNetwork(n *yaml.Node) error {
	l.file.Network = &Network{place: place{l.File, n.Line}}
	has, err := l.Mapping(n, "network", []yamlfile.Field{{Key: "allow", Read: l.readHosts}, {Key: "limits", Read: l.readNetLimits}})
	if err == nil && !has["allow"] {
		err = l.At(n.Line, "allow is missing in network: it is a list of hosts, [] for none")
	}
	return err
}

func (l *loader) readHosts(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return l.At(n.Line, "allow is a list of hosts, not %s", yamlfile.Shape(n))
	}
	if len(n.Content) > MaxHosts {
		return l.At(n.Line, "%d hosts: at most %d are allowed", len(n.Content), MaxHosts)
	}
	for _, item := range n.Content {
		text, err := l.Text(item, "a host")
		if err != nil {
			return err
		}
		l.file.Network.Allow = append(l.file.Network.Allow, Host{text, place{l.File, item.Line}})
	}
	return nil
}

// netLimits are the names of limits, in the order of the schema.
var netLimits = []string{"connections", "new", "out", "in", "rate"}

func (l *loader) readNetLimits(n *yaml.Node) error {
	fields := make([]yamlfile.Field, len(netLimits))
	for i, name := range netLimits {
		fields[i] = yamlfile.Field{Key: name, Read: func(value *yaml.Node) error {
			text, err := l.Text(value, "the limit "+name)
			if err == nil {
				l.file.Network.Limits = append(l.file.Network.Limits, NetLimit{name, text, place{l.File, value.Line}})
			}
			return err
		}}
	}
	_, err := l.Mapping(n, "limits", fields)
	return err
}

// Texts returns the hosts as they are written.
func (n *Network) Texts() []string {
	texts := []string{}
	for _, h := range n.Allow {
		texts = append(texts, h.Text)
	}
	return texts
}

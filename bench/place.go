package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/agentfense/agentfense/bench/host"
)

// A place is one way to give a program a directory.
type place interface {
	Name() string
	// Open enters the place with the data in it as it was made. dirty are the
	// subtrees that the last sessions may have changed; most places forget
	// what a session changed when it is closed.
	Open(ctx context.Context, dirty []string) (*session, error)
}

// starter is a place with a command of its own to start one program in it.
type starter interface {
	// Start is that command, whole, for the program "true".
	Start(ctx context.Context) *exec.Cmd
}

// arranger is a place that has scratch directories and mounts.
type arranger interface {
	// OpenFor is Open with what a row asks of a sandbox.
	OpenFor(ctx context.Context, r *row) (*session, error)
}

// openFor opens a session in a place for one row.
func openFor(ctx context.Context, p place, r *row) (*session, error) {
	if a, ok := p.(arranger); ok {
		return a.OpenFor(ctx, r)
	}
	return p.Open(ctx, r.Dirty)
}

// copier is a place that has a copy of the data, at Root.
type copier interface{ Root() string }

// meter is a place with processes of its own, whose memory counts.
type meter interface {
	// Memory opens the place on the tree of 100,000 files and returns the bytes
	// (PSS) of all its processes, idle or once that tree was walked inside.
	Memory(ctx context.Context, walked bool) (int64, error)
}

// Names of the places that bounds compare with.
const (
	nativeName     = "native"
	agentfenseName = "agentfense"
	overlayName    = "overlayfs"
)

// openPlaces tries each place once. Those that do not work here are left out,
// and notes say why.
func openPlaces(ctx context.Context, d *disk, o options, say func(string)) (places []place, notes []string) {
	for _, c := range candidates(d, o) {
		say("trying " + c.Name())
		err := c.err
		if err == nil {
			err = try(ctx, c.place)
		}
		if err == nil {
			places = append(places, c.place)
			continue
		}
		if !errors.Is(err, host.ErrNotInstalled) || !c.optional {
			notes = append(notes, fmt.Sprintf("%s: %v", c.Name(), err))
		}
	}
	return places, notes
}

func try(ctx context.Context, p place) error {
	s, err := p.Open(ctx, nil)
	if err != nil {
		return err
	}
	return s.Close()
}

func closePlaces(places []place) error {
	var errs []error
	for _, p := range places {
		if c, ok := p.(interface{ Close() error }); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// errNotComparable says that a row means nothing in a place; its cell stays
// empty.
var errNotComparable = errors.New("not comparable")

// A candidate is a place that may not work here.
type candidate struct {
	place
	optional bool // its absence is not worth a word
	err      error
}

func candidates(d *disk, o options) []candidate {
	list := []candidate{
		{place: &plain{disk: d, name: nativeName}},
		newAgentfense(d, o.Binary),
		{place: &overlay{disk: d, name: overlayName, lower: d.Source()}},
		newBwrap(d),
	}
	if o.Peers {
		list = append(list, newFuseOverlay(d), newAgentfs(d))
	}
	return list
}

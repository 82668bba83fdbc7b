package api

import (
	"context"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// Used is how commands used a view, since uses are recorded.
type Used struct {
	Mount   string // the name of the mount; empty: the workspace
	Uses    []uses.Use
	Omitted int64 // uses that were too many to record
}

// usedJSON is Used in a reply. Paths are bytes, with the marks of own entries.
type usedJSON struct {
	Mount    string     `json:"mount,omitempty"`
	Omitted  int64      `json:"omitted,omitempty"`
	Programs [][]byte   `json:"programs,omitempty"`
	Uses     []pathJSON `json:"uses,omitempty"`
}

type pathJSON struct {
	Path     []byte    `json:"path"`
	Kind     uses.Kind `json:"kind"`
	Dir      bool      `json:"dir,omitempty"`
	Programs []int     `json:"programs,omitempty"` // indexes
}

// SetUsed puts uses into the reply.
func (r *Reply) SetUsed(all []Used) {
	for _, u := range all {
		j := usedJSON{Mount: u.Mount, Omitted: u.Omitted}
		index := map[string]int{}
		for _, use := range u.Uses {
			one := pathJSON{Path: []byte(use.Path), Kind: use.Kind, Dir: use.Dir}
			for _, name := range use.Programs {
				i, known := index[name]
				if !known {
					i = len(j.Programs)
					index[name], j.Programs = i, append(j.Programs, []byte(name))
				}
				one.Programs = append(one.Programs, i)
			}
			j.Uses = append(j.Uses, one)
		}
		r.Used = append(r.Used, j)
	}
}

func (j usedJSON) used() (Used, error) {
	u := Used{Mount: j.Mount, Omitted: j.Omitted}
	for _, one := range j.Uses {
		p, err := vpath.ParseOwn(string(one.Path))
		if err != nil {
			return u, err
		}
		use := uses.Use{Path: p, Kind: one.Kind, Dir: one.Dir}
		for _, i := range one.Programs {
			if i < 0 || i >= len(j.Programs) {
				return u, errdefs.New(errdefs.Internal, "control: program %d is not in the reply", i)
			}
			use.Programs = append(use.Programs, string(j.Programs[i]))
		}
		u.Uses = append(u.Uses, use)
	}
	return u, nil
}

// Learn makes the supervisor record how the views are used. Errors: Precondition if a command
// ran before.
func (c *Client) Learn(ctx context.Context) error {
	_, err := c.call(ctx, Request{Op: OpLearn})
	return err
}

// Used returns what was recorded, that of the workspace first. Errors: Precondition if uses are
// not recorded.
func (c *Client) Used(ctx context.Context) ([]Used, error) {
	answer, err := c.call(ctx, Request{Op: OpUsed})
	if err != nil {
		return nil, err
	}
	var all []Used
	for _, j := range answer.Used {
		u, err := j.used()
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

package cleangit

import (
	"maps"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// takenFile lists the sandbox's commits that a transplant has brought into the source's repository.
// It is beside the repository, where no command of the sandbox can write.
const takenFile = "taken"

// maxBecame bounds how many commits are kept that one of the sandbox became.
const maxBecame = 16

// Became is what became of a commit of the sandbox that was brought out.
type Became struct {
	Real string // the commit of the source; "" if it was left out, because it changes hidden files alone
	// Transaction is that of the history with which the branch that is checked out got it, "" for a
	// new branch.
	Transaction string
	Undone      bool // by an undo of that transaction
}

// Taken returns what became of the commits of the sandbox that were brought out, oldest first: a
// commit can be on several branches of the source, as another one on each.
func (s Store) Taken() (map[string][]Became, error) {
	text, err := safefs.ReadRegularIn(string(s), takenFile, maxCommitsFile)
	if err != nil && !isAbsent(err) {
		return nil, damaged(err)
	}
	taken := map[string][]Became{}
	for line := range strings.Lines(string(text)) {
		id, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		real, rest, _ := strings.Cut(rest, " ")
		transaction, rest, _ := strings.Cut(rest, " ")
		taken[id] = append(taken[id], Became{real, transaction, rest == undone})
	}
	return taken, nil
}

// NoteTaken notes what else became of commits of the sandbox.
func (s Store) NoteTaken(became map[string]Became) error {
	taken, err := s.Taken()
	if err != nil {
		return err
	}
	for id, b := range became {
		isSame := func(old Became) bool { return old.Real == b.Real }
		all := append(slices.DeleteFunc(taken[id], isSame), b)
		taken[id] = all[max(0, len(all)-maxBecame):]
	}
	return s.writeTaken(taken)
}

// undone ends the line of a commit of which the transaction is undone.
const undone = "undone"

// NoteUndone notes whether the commits of the transaction that made the commit tip of the source
// are undone.
func (s Store) NoteUndone(tip string, isUndone bool) error {
	taken, err := s.Taken()
	if err != nil {
		return err
	}
	of := map[string]bool{}
	for _, all := range taken {
		for _, b := range all {
			if b.Real == tip && b.Transaction != "" {
				of[b.Transaction] = true
			}
		}
	}
	changed := false
	for _, all := range taken {
		for i := range all {
			if b := &all[i]; of[b.Transaction] && b.Undone != isUndone {
				b.Undone, changed = isUndone, true
			}
		}
	}
	if !changed {
		return nil
	}
	return s.writeTaken(taken)
}

func (s Store) writeTaken(taken map[string][]Became) error {
	var list strings.Builder
	for _, id := range slices.Sorted(maps.Keys(taken)) {
		for _, b := range taken[id] {
			line := strings.TrimRight(id+" "+b.Real+" "+b.Transaction, " ")
			if b.Undone {
				line += " " + undone
			}
			list.WriteString(line + "\n")
		}
	}
	return hostError(safefs.WriteDurably(string(s), takenFile, []byte(list.String())))
}

package record

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// variablesFile has the variables of a sandbox's commands. Its mode is 0600, and commands
// inside never see it.
const variablesFile = "variables.json"

// variables is the content of variablesFile. NAME=VALUE is stored as given. NAME alone
// means the caller's value at the time of each command, which is not stored.
type variables struct {
	SchemaVersion int      `json:"schema_version"`
	Variables     [][]byte `json:"variables"` // bytes, because a value need not be UTF-8
}

// Variables returns the stored variables, ordered by name. Errors: Precondition if the file
// is damaged.
func (s *Sandbox) Variables() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(s.Dir(), variablesFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, HostError("variables", err)
	}
	var v variables
	if err := json.Unmarshal(text, &v); err != nil || v.SchemaVersion != 1 {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %[1]s: %[2]s is damaged or newer than this agentfense: remove %[3]s and give --env again", s.Name(), variablesFile, HostPath(filepath.Join(s.Dir(), variablesFile)))
	}
	list := make([]string, len(v.Variables))
	for i, b := range v.Variables {
		list[i] = string(b)
	}
	return list, nil
}

// RememberVariables stores variables for later commands: NAME=VALUE, or NAME for the value
// of the caller of each command. It replaces stored variables of the same names.
func (s *Sandbox) RememberVariables(given []string) error {
	return s.RememberVariablesIf(given, func(string) bool { return true })
}

// RememberVariablesIf is RememberVariables, but drops the variables for which keep returns
// false.
func (s *Sandbox) RememberVariablesIf(given []string, keep func(string) bool) error {
	return s.Home.Locked(func() error {
		kept, err := s.Variables()
		if err != nil {
			return err
		}
		for _, g := range given {
			name := nameOf(g)
			kept = slices.DeleteFunc(kept, func(k string) bool { return nameOf(k) == name })
			if keep(g) {
				kept = append(kept, g)
			}
		}
		slices.SortFunc(kept, func(a, b string) int { return strings.Compare(nameOf(a), nameOf(b)) })
		v := variables{SchemaVersion: 1}
		for _, k := range kept {
			v.Variables = append(v.Variables, []byte(k))
		}
		text, err := json.Marshal(v)
		if err != nil {
			return errdefs.New(errdefs.Internal, "variables: %w", err)
		}
		if err := safefs.WriteDurably(s.Dir(), variablesFile, append(text, '\n')); err != nil {
			return HostError("sandbox "+s.Name(), err)
		}
		return nil
	})
}

func nameOf(variable string) string {
	name, _, _ := strings.Cut(variable, "=")
	return name
}

package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// projectRules returns the project's own policy file and its rules, nil if it has
// none. The file came with the project, maybe from a stranger: unless
// it only narrows the default preset, the person must agree to it once for
// each content.
func (e *env) projectRules(home *sandbox.Home, source string) (*policy.Document, []policy.Rule, error) {
	path := filepath.Join(source, policy.ProjectFile.Rel())
	content, err := readProjectFile(source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	doc, err := policy.Load(bytes.NewReader(content), policy.ProjectFile.Rel())
	if err != nil {
		return nil, nil, err
	}
	rules, err := doc.AllRules()
	if err != nil || onlyNarrows(doc) {
		return doc, rules, err
	}
	trusted, err := home.IsTrusted(path, content)
	if err != nil || trusted {
		return doc, rules, err
	}
	if err := e.askForTrust(doc); err != nil {
		return nil, nil, err
	}
	return doc, rules, home.Trust(path, content)
}

// readProjectFile reads the project's own policy file, which may be anything: a
// link that leads elsewhere is refused, not passed over. Errors:
// fs.ErrNotExist; Invalid.
func readProjectFile(source string) ([]byte, error) {
	content, err := hostfile.ReadRegularIn(source, policy.ProjectFile.Rel(), policy.MaxFileBytes)
	if err != nil {
		return nil, fault.New(fault.Invalid, "project policy %s: %w", vpath.Escape(filepath.Join(source, policy.ProjectFile.Rel())), err)
	}
	return content, nil
}

// onlyNarrows reports whether a policy certainly grants no more than the
// default preset: it is that preset, or nothing, with none-rules on top.
func onlyNarrows(doc *policy.Document) bool {
	if doc.Preset != "" && doc.Preset != policy.DefaultPreset {
		return false
	}
	for _, r := range doc.Rules {
		if r.Permission != policy.None {
			return false
		}
	}
	return true
}

// askForTrust shows what the project's file grants and asks on the terminal.
// Without one nothing prompts.
func (e *env) askForTrust(doc *policy.Document) error {
	const how = "the project's .agentfense.yaml grants more than the default preset; read it, then pass it with --policy .agentfense.yaml, or choose a --preset"
	if !e.canAsk() {
		return fault.New(fault.Denied, "%s", how)
	}
	fmt.Fprintln(e.stderr, "The project brings a policy that grants more than the default preset:")
	if doc.Preset != "" {
		fmt.Fprintf(e.stderr, "  preset %s\n", vpath.Escape(doc.Preset))
	}
	for _, r := range doc.Rules {
		fmt.Fprintf(e.stderr, "  %s\n", r)
	}
	if !e.confirm("Use it, now and until it changes?") {
		return fault.New(fault.Denied, "%s", how)
	}
	return nil
}

// canAsk reports whether a person is there to answer.
func (e *env) canAsk() bool {
	return term.IsTerminal(int(e.stdin.Fd())) && term.IsTerminal(int(e.stderr.Fd()))
}

// confirm asks on the terminal; anything but a yes is a no.
func (e *env) confirm(question string) bool {
	fmt.Fprintf(e.stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(e.stdin).ReadString('\n')
	return err == nil && strings.EqualFold(strings.TrimSpace(answer), "y")
}

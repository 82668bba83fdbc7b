package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

var update = flag.Bool("update", false, "rewrite the generated file of the Python package")

// pythonFile holds what the Python package takes from Go.
const pythonFile = "../../sdk/python/src/agentfense/_generated.py"

// TestThePythonPackageHasTheSameWordsAndPresets compares the generated file with what
// Go says. With -update it writes the file.
func TestThePythonPackageHasTheSameWordsAndPresets(t *testing.T) {
	want := generatePython(t)
	if *update {
		if err := os.WriteFile(pythonFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(pythonFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is stale: run make gen (-want +got):\n%s", pythonFile, diff)
	}
}

func generatePython(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(`"""The words and presets that this package shares with the command line. Written by make gen: do not edit."""

from __future__ import annotations

from enum import Enum
from typing import Dict, Tuple

`)
	writeWords(&b, "Permission", "What a path is to a sandbox: it does not exist, is listed without its content, can be read, can be changed.", policy.Permissions())
	writeWords(&b, "PatternType", "How a rule's pattern is read; AUTO tells it from the pattern's text, as a policy file does.", append(policy.PatternTypes(), policy.Auto.String()))
	writeWords(&b, "Risk", "How a changed file could act outside of the sandbox: tools of the host do what it says, or it is run there.", riskWords(t))
	writeWords(&b, "Reason", "Why a server refuses a call: it tells errors of one status apart.", errorReasons())
	b.WriteString("\nRule = Tuple[str, Permission, PatternType, int]\n\"\"\"Pattern, permission, type and priority.\"\"\"\n\n")
	for _, name := range preset.Names() {
		fmt.Fprintf(&b, "PRESET_%s = %q\n", constant(name), name)
	}
	fmt.Fprintf(&b, "\nDEFAULT_PRESET = PRESET_%s\n\n", constant(preset.Default))
	writePresets(t, &b, "PRESETS", preset.Names())
	b.WriteByte('\n')
	writePresets(t, &b, "FIRST_PRESETS", preset.FirstNames())
	return b.Bytes()
}

// riskWords returns the API's word of each risk. The API has a number instead of a word
// for no risk.
func riskWords(t *testing.T) []string {
	t.Helper()
	words := []string{"none"}
	for _, r := range review.Risks() {
		word, err := r.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, string(word))
	}
	return words
}

func errorReasons() []string {
	var words []string
	for _, r := range errdefs.Reasons() {
		words = append(words, string(r))
	}
	return words
}

// constant returns a word as Python writes the name of a constant.
func constant(word string) string { return strings.ToUpper(strings.ReplaceAll(word, "-", "_")) }

func writeWords(b *bytes.Buffer, class, doc string, words []string) {
	fmt.Fprintf(b, "\nclass %s(str, Enum):\n    \"\"\"%s\"\"\"\n\n", class, doc)
	for _, w := range words {
		fmt.Fprintf(b, "    %s = %q\n", constant(w), w)
	}
	b.WriteByte('\n')
}

func writePresets(t *testing.T, b *bytes.Buffer, variable string, names []string) {
	t.Helper()
	fmt.Fprintf(b, "%s: Dict[str, Tuple[Rule, ...]] = {\n", variable)
	for _, name := range names {
		rules, err := preset.Rules(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "    %q: (\n", name)
		for _, r := range rules {
			fmt.Fprintf(b, "        (%q, Permission.%s, PatternType.%s, %d),\n", r.Pattern, constant(r.Permission.String()), constant(r.Type.String()), r.Priority)
		}
		b.WriteString("    ),\n")
	}
	b.WriteString("}\n")
}

package cli

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// helpOf returns the help of the verb and of those below it.
func helpOf(t *testing.T, root *cobra.Command, path ...string) string {
	t.Helper()
	verb, _, err := root.Find(path)
	if err != nil {
		t.Fatal(err)
	}
	text := verb.Long + "\n" + verb.UsageString()
	for _, sub := range verb.Commands() {
		text += helpOf(t, root, append(slices.Clone(path), sub.Name())...)
	}
	return text
}

func TestAFrequentVerbIsTheSameWithoutTheOthers(t *testing.T) {
	alone := 0
	for _, verb := range Root().Commands() {
		e := newEnv()
		e.args = []string{verb.Name(), "--help"}
		root := newRoot(e)
		if len(root.Commands()) == 1 {
			alone++
		}
		if diff := cmp.Diff(helpOf(t, Root(), verb.Name()), helpOf(t, root, verb.Name())); diff != "" {
			t.Errorf("%s (-among all +alone):\n%s", verb.Name(), diff)
		}
	}
	if alone != 13 {
		t.Errorf("%d verbs are made without the others, want 13", alone)
	}
}

func TestOtherWordsFindAllVerbs(t *testing.T) {
	all := len(Root().Commands())
	for _, args := range [][]string{nil, {"--help"}, {"help", "run"}, {"--endpoint", "x", "run"}, {"claude"}, {"runn"}, {"__complete", "run"}} {
		e := newEnv()
		e.args = args
		if got := len(newRoot(e).Commands()); got != all {
			t.Errorf("%q: %d verbs, want %d", args, got, all)
		}
	}
}

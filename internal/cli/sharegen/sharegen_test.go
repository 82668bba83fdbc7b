package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func generated(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := generate(cli.Root(), dir, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Each verb has a page with its name, its flags and its examples, and there is no other page.
func TestEachVerbHasAPage(t *testing.T) {
	dir := generated(t)
	pages, err := filepath.Glob(filepath.Join(dir, "man/man1/*.1"))
	if err != nil {
		t.Fatal(err)
	}
	verbs := 0
	each(cli.Root(), func(cmd *cobra.Command) {
		verbs++
		text, err := os.ReadFile(filepath.Join(dir, "man/man1", pageName(cmd)+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		for _, section := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH SEE ALSO\n"} {
			if !bytes.Contains(text, []byte(section)) {
				t.Errorf("%s: no %s", pageName(cmd), section)
			}
		}
		if cmd.Flags().Lookup("json") != nil && !bytes.Contains(text, []byte(`.B "\-\-json"`)) {
			t.Errorf("%s: no flag --json", pageName(cmd))
		}
	})
	// The completion verb and its shells come from cobra when the program starts.
	if completions := 5; len(pages) != verbs+completions || verbs < 40 {
		t.Errorf("%d pages of %d verbs", len(pages), verbs)
	}
}

// groff prints each page without a warning.
func TestPagesAreRoff(t *testing.T) {
	testenv.Command(t, "groff")
	pages, err := filepath.Glob(filepath.Join(generated(t), "man/man1/*.1"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%v: %d pages", err, len(pages))
	}
	for _, page := range pages {
		var said bytes.Buffer
		cmd := exec.Command("groff", "-man", "-Tutf8", "-ww", "-Wfont", page)
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || said.Len() > 0 || len(out) < 100 {
			t.Errorf("%s: %v: %s", page, err, said.String())
		}
	}
}

// What roff takes for a request or an escape is printed as it is.
func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		".agentfense.yaml": `\&.agentfense.yaml`,
		"'quoted' --flag":  `\&\(aqquoted\(aq \-\-flag`,
		`a\nb`:             `a\enb`,
	} {
		if got := line(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// bash completes with the generated file; the program gives the proposals.
func TestBashLoadsTheCompletion(t *testing.T) {
	file := filepath.Join(generated(t), "bash-completion/completions/agentfense")
	script := `. "$1"; complete -p agentfense; agentfense() { [ "$1" = __complete ] && printf 'policy\tCheck\nprune\tRemove\n:4\n'; }
COMP_WORDS=(agentfense p); COMP_CWORD=1; COMP_LINE="agentfense p"; COMP_POINT=12; COMP_TYPE=9
_get_comp_words_by_ref() { cur=p; prev=agentfense; words=(agentfense p); cword=1; }
__start_agentfense; printf '%s\n' "${COMPREPLY[@]}"`
	out, err := exec.Command("bash", "-c", script, "bash", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "policy") || !strings.Contains(string(out), "prune") {
		t.Errorf("%v: %s", err, out)
	}
}

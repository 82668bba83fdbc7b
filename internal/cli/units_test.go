package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// TestUnitsStartWhatThereIs: the command line of each systemd unit is one that
// this program takes, and both leave sandboxes alone when the server stops.
func TestUnitsStartWhatThereIs(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("found %q, %v; want two units", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
				settings[key] = value
			}
		}
		args := strings.Fields(settings["ExecStart"])
		if len(args) < 2 || args[0] != "/usr/local/bin/agentfense" {
			t.Errorf("%s: ExecStart %q", unit, args)
			continue
		}
		verb, rest, err := Root().Find(args[1:])
		if err != nil || verb.Name() != "serve" {
			t.Errorf("%s: %q is no verb: %v", unit, args[1:], err)
			continue
		}
		if err := verb.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", unit, err)
		}
		if settings["KillMode"] != "process" || settings["Delegate"] != "yes" {
			t.Errorf("%s: KillMode=%s Delegate=%s, want process and yes", unit, settings["KillMode"], settings["Delegate"])
		}
	}
}

// TestUnitsAreUnderstood: systemd knows all that the units say.
func TestUnitsAreUnderstood(t *testing.T) {
	testenv.Command(t, "systemd-analyze")
	for unit, flags := range map[string][]string{"agentfense.service": {"verify"}, "agentfense.user.service": {"--user", "verify"}} {
		text, err := os.ReadFile("../../deploy/systemd/" + unit)
		if err != nil {
			t.Fatal(err)
		}
		// The program need not be installed here.
		installed := filepath.Join(t.TempDir(), strings.ReplaceAll(unit, ".user.", "-user."))
		if err := os.WriteFile(installed, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/agentfense", "/bin/true")), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("systemd-analyze", append(flags, installed)...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", unit, err, out)
		}
	}
}

package attack_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/test/harness"
)

// plantedSecrets are names under which secrets are kept.
var plantedSecrets = []string{
	".env", ".env.local", ".env.production", ".ssh/id_ed25519", "id_rsa", ".aws/credentials", "credentials.json", ".netrc", ".npmrc",
	".pypirc", ".git-credentials", ".docker/config.json", "kubeconfig", "infra/terraform.tfstate", "certs/client.p12", "certs/server.key",
	"certs/server.pem", "secrets.yaml", "secrets/token", "service-account-prod.json",
}

// No preset that lets anything be read shows a secret, but full-access, which shows
// everything: not by its name, not
// through a directory's listing, not by a link that the command makes, and not
// beside an example that is readable.
func TestPresetsHidePlantedSecrets(t *testing.T) {
	for _, preset := range preset.Names() {
		if preset == "view-only" || preset == "full-access" {
			continue
		}
		t.Run(preset, func(t *testing.T) {
			files := map[string]string{".env.example": "public", "venv/certifi/cacert.pem": "public", "secrets/token.example": "planted"}
			for _, name := range plantedSecrets {
				files[name] = "planted"
			}
			s := harness.New(t, binary, files)
			untouched := s.Untouched()
			look := "cat " + strings.Join(plantedSecrets, " ") + " 2>/dev/null; ls -RA; grep -r planted .; " +
				"for f in " + strings.Join(plantedSecrets, " ") + "; do ln -s \"$PWD/$f\" /tmp/l; cat /tmp/l; rm -f /tmp/l; done 2>/dev/null; " +
				"cat .env.example venv/certifi/cacert.pem"
			out := s.Run(look, "--preset", preset).Stdout
			if strings.Contains(out, "planted") {
				t.Errorf("a secret shows:\n%s", out)
			}
			for _, name := range []string{"id_rsa", "token", ".npmrc", "kubeconfig", "id_ed25519", "client.p12"} {
				if strings.Contains(out, name) {
					t.Errorf("%s is listed:\n%s", name, out)
				}
			}
			want := 2
			if preset == "nothing" {
				want = 0
			}
			if got := strings.Count(out, "public"); got != want {
				t.Errorf("of 2 public files %d show, want %d:\n%s", got, want, out)
			}
			untouched()
		})
	}
}

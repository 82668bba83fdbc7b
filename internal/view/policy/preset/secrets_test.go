package preset_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// hiddenNames are files that hold secrets.
var hiddenNames = []vpath.Path{
	"/.env", "/.env.local", "/sub/.env.production", "/.env.acme", "/.env-old", "/.env2", "/.envrc.local", "/.env.example.bak",
	"/.ssh/id_ed25519", "/.ssh/known_hosts", "/id_rsa", "/deploy/id_ecdsa",
	"/.aws/credentials", "/credentials.json", "/config/credentials.prod.json", "/gcp-credentials.json", "/credentials.yml",
	"/.netrc", "/.npmrc", "/web/.npmrc", "/.pypirc", "/.git-credentials", "/.docker/config.json",
	"/kubeconfig", "/prod.kubeconfig", "/.kube/config", "/terraform.tfstate", "/infra/terraform.tfstate.backup", "/prod.tfvars",
	"/cert.p12", "/store.pfx", "/release.jks", "/secrets.yaml", "/chart/secrets.prod.yaml", "/secret.yaml", "/db-secret.yml",
	"/service-account.json", "/service-account-prod.json", "/my-service_account.json", "/serviceAccountKey.json",
	"/client_secret_1.apps.json", "/server.key", "/server.pem", "/privkey.pem", "/keycert.pem", "/keychain.pem", "/t.pem", "/mycacert.pem",
	"/secrets/token", "/a/secrets/b/c.example", "/.gnupg/pubring.kbx", "/.htpasswd", "/.pgpass", "/.bash_history",
	"/.cargo/credentials.toml", "/.vault-token", "/.config/gcloud/x.db", "/.claude/.credentials.json",
}

// shownNames are examples, public certificates, and code that speaks of secrets.
var shownNames = []vpath.Path{
	"/.env.example", "/.env.sample", "/.env.template", "/.env.dist", "/.env.production.example", "/.envrc", "/sub/.envrc",
	"/venv/lib/python3/site-packages/certifi/cacert.pem", "/fullchain.pem", "/chain.pem", "/etc/roots.pem", "/ca-bundle.pem",
	"/credentials.example.json", "/credentials.json.example", "/service-account.example.json", "/secrets.yaml.example",
	"/terraform.tfvars.example", "/.npmrc.example", "/id_rsa.pub", "/ca.crt",
	"/credentials.go", "/credentials/credentials.go", "/src/secrets.py", "/package.json", "/tsconfig.json", "/environment.ts",
	"/docs/kubeconfig.md", "/service-account.go", "/config.json", "/account.json", "/.aws/task-definition.json",
}

func TestPresetsHideSecrets(t *testing.T) {
	for _, name := range []string{"agent-safe", "development", "read-only"} {
		p := compile(t, rulesOf(t, name))
		for _, path := range hiddenNames {
			if d := p.Decide(path); d.Permission != policy.None {
				t.Errorf("%s: %s is %s by %s, want none", name, path, d.Permission, d.Reason)
			}
		}
		for _, path := range shownNames {
			if d := p.Decide(path); d.Permission < policy.Read {
				t.Errorf("%s: %s is %s by %s, want read at least", name, path, d.Permission, d.Reason)
			}
		}
	}
}

// TestAnExampleInAHiddenDirectoryStaysHidden: what keeps examples readable is no
// rule, which could outrank one that hides a directory.
func TestAnExampleInAHiddenDirectoryStaysHidden(t *testing.T) {
	rules := append(rulesOf(t, "development"), policy.Rule{Pattern: "/private/", Permission: policy.None})
	p := compile(t, rules)
	for _, path := range []vpath.Path{"/private/.env.example", "/private/cacert.pem", "/secrets/x.sample"} {
		if d := p.Decide(path); d.Permission != policy.None {
			t.Errorf("%s is %s by %s, want none", path, d.Permission, d.Reason)
		}
	}
	for _, path := range []vpath.Path{"/private", "/private/sub", "/secrets"} {
		if d := p.Decide(path); d.Traversable {
			t.Errorf("%s is traversable", path)
		}
	}
}

func TestSecretsHaveAKindAndASource(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range secretname.All() {
		if seen[s.Pattern] {
			t.Errorf("%s is there twice", s.Pattern)
		}
		seen[s.Pattern] = true
		if s.Kind == "" || s.Origin == "" || !strings.HasPrefix(s.Pattern, "**/") || strings.Contains(s.Pattern, "!(") {
			t.Errorf("%+v: want a pattern at any depth, a kind and a source", s)
		}
	}
	if len(seen) < 40 {
		t.Errorf("%d names of secrets: was the table read?", len(seen))
	}
}

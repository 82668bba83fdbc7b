package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/login"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// What becomes of a login, by what the caller has besides.
func TestALoginIsASecretWhereThatIsPossible(t *testing.T) {
	const valid = `{"claudeAiOauth": {"accessToken": "sk-ant-oat01-x", "scopes": ["a", "b"]}}`
	for name, test := range map[string]struct {
		file       string
		own        string // what a profile of the user adds
		variables  map[string]string
		secrets    []string
		permission policy.Permission
		readable   bool
	}{
		"a login":            {file: valid, secrets: []string{"CLAUDE_CODE_OAUTH_TOKEN=json:claudeAiOauth.accessToken:HOME/.claude/.credentials.json@api.anthropic.com"}},
		"no login":           {permission: policy.Write},
		"a key, too":         {file: valid, variables: map[string]string{"ANTHROPIC_API_KEY": "0123456789"}, secrets: []string{"ANTHROPIC_API_KEY@api.anthropic.com"}},
		"a token, too":       {file: valid, variables: map[string]string{"CLAUDE_CODE_OAUTH_TOKEN": "0123456789"}, secrets: []string{"CLAUDE_CODE_OAUTH_TOKEN@api.anthropic.com"}},
		"an address, too":    {file: valid, variables: map[string]string{"ANTHROPIC_BASE_URL": "https://a.example.com"}, permission: policy.Write, readable: true},
		"another form":       {file: `{"token": "x"}`, permission: policy.Write, readable: true},
		"damaged":            {file: `{`, permission: policy.Write, readable: true},
		"as the user has it": {file: valid, own: "login: [.claude/.credentials.json]\n", permission: policy.Write, readable: true},
		"hidden by the user": {file: valid, own: "home: [{pattern: /.claude/.credentials.json, permission: none, priority: 1}]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			home, dir := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "claude.yaml"), []byte("version: 1\nextends: claude\n"+test.own), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(home, ".claude"), 0o700); err != nil {
				t.Fatal(err)
			}
			if test.file != "" {
				if err := os.WriteFile(filepath.Join(home, ".claude/.credentials.json"), []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p, err := profile.Load(dir, "claude")
			if err != nil {
				t.Fatal(err)
			}
			e := &env{getenv: func(v string) string { return test.variables[v] }, stderr: os.Stderr}
			cmd := newAgent(e, "claude")
			var o runOptions
			if p, err = o.takeLogin(t.Context(), e, cmd, &inside{home: home}, p); err != nil {
				t.Fatal(err)
			}
			if _, err := o.giveNetwork(e, cmd, p); err != nil {
				t.Fatal(err)
			}
			var secrets []string
			for _, s := range o.Secrets {
				secrets = append(secrets, strings.Replace(s, home, "HOME", 1))
			}
			if !slices.Equal(secrets, test.secrets) || (o.login != nil && o.login.readable) != test.readable {
				t.Errorf("secrets %q, readable: %+v; want %q, %v", secrets, o.login, test.secrets, test.readable)
			}
			if isLogin := name == "a login"; slices.Contains(o.Env, "CLAUDE_CODE_OAUTH_SCOPES=a b") != isLogin || slices.Contains(o.Allow, "api.anthropic.com:443,intercept") != (isLogin || name == "a token, too") {
				t.Errorf("variables %q, hosts %q", o.Env, o.Allow)
			}
			rules, err := policy.Compile(p.HomeRules(), policy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := rules.Decide(vpath.Path("/.claude/.credentials.json")); d.Permission != test.permission {
				t.Errorf("the file is %v, want %v", d.Permission, test.permission)
			}
		})
	}
}

// handed is a sandbox that is given secrets.
type handed struct {
	backend.Live

	given chan struct{}
}

func (h handed) GiveSecrets(context.Context) error {
	h.given <- struct{}{}
	return nil
}

// A token that another program has renewed is handed over to the sandbox that runs.
func TestARunningSandboxGetsTheNextToken(t *testing.T) {
	home := t.TempDir()
	write := func(token string) {
		text := fmt.Sprintf(`{"token": %q}`, token)
		if err := os.WriteFile(filepath.Join(home, "new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(home, "new"), filepath.Join(home, "auth.json")); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	l := &agentLogin{of: login.In(home, login.Spec{File: "auth.json", Token: "token"}), secret: "TOKEN", pause: time.Millisecond}
	live := handed{given: make(chan struct{})}
	end := l.follow(t.Context(), live)
	<-live.given
	write("second")
	<-live.given
	end()
	select {
	case <-live.given:
		t.Error("a token is handed over again")
	default:
	}
	var none *agentLogin
	none.follow(t.Context(), live)()
}

// No signal ends the process while a login is renewed.
func TestASignalWaitsForARenewal(t *testing.T) {
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, unix.SIGTERM)
	defer signal.Stop(seen)
	came := shielded(func() {
		if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-seen
	})
	if came != unix.SIGTERM {
		t.Errorf("got %v, want SIGTERM", came)
	}
	if came := shielded(func() {}); came != nil {
		t.Errorf("got %v, want none", came)
	}
}

package attack_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// Variables of the caller's environment stay outside, unless they are named.
func TestEnvironmentStaysOutside(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"evil": "echo run by BASH_ENV\n"}, who...)
		for name, value := range map[string]string{
			"LD_PRELOAD": "", "LD_LIBRARY_PATH": s.Source, "GIT_DIR": s.Source, "GIT_SSH_COMMAND": "evil", "GIT_EXTERNAL_DIFF": "evil",
			"BASH_ENV": s.Source + "/evil", "ENV": s.Source + "/evil", "PYTHONPATH": s.Source, "PYTHONSTARTUP": s.Source + "/evil",
			"NODE_OPTIONS": "--require=evil", "PERL5OPT": "-Mevil", "RUBYOPT": "-revil", "PROMPT_COMMAND": "evil", "SHELLOPTS": "xtrace",
			"AWS_SECRET_ACCESS_KEY": "secret", "GITHUB_TOKEN": "secret", "HTTPS_PROXY": "http://user:secret@proxy", "no_proxy": "secret",
			"SSH_AUTH_SOCK": "/run/secret", "DBUS_SESSION_BUS_ADDRESS": "unix:secret", "XDG_RUNTIME_DIR": "/run/user/0", "DISPLAY": ":0",
			"DOCKER_HOST": "unix:///run/docker.sock", "GODEBUG": "http2debug=1", "TMPDIR": s.Source,
		} {
			t.Setenv(name, value)
		}
		r := s.Agentfense("run", "--name", s.Name, "--", "env")
		wantCode(t, r, 0)
		allowed := []string{
			"PATH", "HOME", "USER", "LOGNAME", "AGENTFENSE_SANDBOX",
			"COLORTERM", "LANG", "LANGUAGE", "NO_COLOR", "TERM", "TZ",
			"LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
		}
		for line := range strings.Lines(r.Stdout) {
			if name, _, _ := strings.Cut(line, "="); !slices.Contains(allowed, name) {
				t.Errorf("inside there is %q", line)
			}
		}
		// PID 1 and the leader of the command have nothing either.
		r = s.Run("cat /proc/1/environ /proc/$PPID/environ; cat evil")
		if strings.Contains(r.Stdout, "secret") || !strings.Contains(r.Stderr, "Permission denied") {
			t.Errorf("our processes inside show %q, %q", r.Stdout, r.Stderr)
		}

		// What is named is passed, and nothing else with it.
		r = s.Agentfense("run", "--name", s.Name, "--env", "GITHUB_TOKEN", "--", "env")
		if !strings.Contains(r.Stdout, "GITHUB_TOKEN=secret\n") || strings.Contains(r.Stdout, "AWS_") {
			t.Errorf("--env GITHUB_TOKEN gives\n%s", r.Stdout)
		}
	})
}

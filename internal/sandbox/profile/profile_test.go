package profile_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Each built-in profile is read, says what its verb needs, and explains its lines.
func TestBuiltInProfiles(t *testing.T) {
	names := profile.BuiltIn()
	if !slices.Contains(names, "claude") || !slices.IsSorted(names) {
		t.Fatalf("%q", names)
	}
	for _, name := range names {
		p, err := profile.Load("", name)
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Title == "" || p.Command == "" || p.Install == "" || len(p.Home) == 0 || !p.IsBuiltIn() {
			t.Errorf("%s: lacks a field: %+v", name, p)
		}
		checkHome(t, p)
	}
}

// checkHome checks what no profile may show, and what no change of may be kept without a review.
func checkHome(t *testing.T, p *profile.Profile) {
	t.Helper()
	home, err := policy.Compile(p.Home, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []vpath.Path{
		"/.ssh/id_ed25519", "/.bashrc", "/.profile", "/.aws/credentials", "/.config/gh/hosts.yml", "/.netrc", "/.gnupg/x", "/Documents/x",
		"/.git-credentials", "/.gitconfig", "/.config/git/config", "/.config/git/credentials", "/.local/share/keyrings/x", "/.npmrc", "/.docker/config.json", "/.kube/config", "/.local/share/agentfense/x",
	} {
		if d := home.Decide(path); d.ForDir() != policy.None {
			t.Errorf("%s shows %s: %+v", p.Name, path, d)
		}
	}
	for _, login := range p.Login {
		d := home.Decide(vpath.Path("/" + login.File))
		if d.Permission != policy.Write { // some are kept, and some wait for a review
			t.Errorf("%s cannot write its login %s: %+v", p.Name, login.File, d)
		}
	}
	if d := home.Decide("/"); d.Permission != policy.Write {
		t.Errorf("%s: nothing can be made in the home directory", p.Name)
	}
}

func TestAFileOfTheUserExtendsAProfile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("claude.yaml", "version: 1\nextends: claude\npreset: read-only\nnetwork: [example.com]\nset: {A: \"1\"}\n")
	write("mine.yaml", "version: 1\ncommand: my-agent\nhome: [{pattern: /.mine/, permission: write}]\n")
	write("loop.yaml", "version: 1\nextends: pool\n")
	write("pool.yaml", "version: 1\nextends: loop\n")
	base, err := profile.Load("", "claude")
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Load(dir, "claude")
	if err != nil {
		t.Fatal(err)
	}
	if p.Preset != "read-only" || p.Command != base.Command || p.IsBuiltIn() || len(p.Secrets) != len(base.Secrets) {
		t.Errorf("%+v", p)
	}
	if want := append(slices.Clone(base.Hosts), "example.com"); !slices.Equal(p.Hosts, want) {
		t.Errorf("hosts %q, want %q", p.Hosts, want)
	}
	if _, err := profile.Load(dir, "loop"); !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), `unknown profile "loop"`) {
		t.Errorf("profiles that extend each other: %v", err)
	}
	if mine, err := profile.Load(dir, "mine"); err != nil || !strings.HasPrefix(mine.Home[0].Source, "profile mine (") {
		t.Errorf("%+v, %v", mine, err)
	}
	if names := profile.Names(dir); !slices.Contains(names, "mine") || !slices.Contains(names, "codex") {
		t.Errorf("%q", names)
	}
	if _, err := profile.Load(dir, "cluade"); !errdefs.Is(err, errdefs.NotFound) || !strings.Contains(err.Error(), `did you mean "claude"?`) {
		t.Error(err)
	}
}

func TestMalformedProfilesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "x.yaml:1: the file is empty",
		"a: [":                             "x.yaml:1: ",
		"- a":                              "x.yaml:1: a profile is a mapping, not a list",
		"command: x":                       "x.yaml:1: version is missing",
		"version: 2":                       `x.yaml:1: version "2" is not known`,
		"version: 1":                       "x.yaml:1: command is missing",
		"version: 1\ncomand: x":            `x.yaml:2: unknown key "comand": did you mean "command"?`,
		"version: 1\nhome: [{pattern: a}]": "x.yaml:2: permission is missing in the rule",
		"version: 1\nhome: [{patern: a}]":  `x.yaml:2: unknown key "patern"`,
		"version: 1\npreset: developmen":   `x.yaml:2: unknown preset "developmen": did you mean "development"?`,
		"version: 1\nargs: a":              "x.yaml:2: args is a list, not a single value",
		"version: 1\nnetwork: [\"*.com\"]": "x.yaml:2: network: ",
		"version: 1\nset: [A]":             "x.yaml:2: set is a mapping of variables to values, not a list",
		"version: 1\nset: {A: }":           "x.yaml:2: A has no value",
		"version: 1\nsecrets: [{name: A}]": "x.yaml:2: a secret has a name",
		"version: 1\nsecrets: [{name: 1, host: a.b}]":                                                  "x.yaml:2: ",
		"version: 1\nsecrets: [{name: A, host: a.example.com, requests: [POST]}]":                      "x.yaml:2: ",
		"version: 1\nextends: cluade":                                                                  `x.yaml:2: extends: unknown profile "cluade"`,
		"version: 1\ncommand: a --b":                                                                   `x.yaml:2: command: "a --b": want the name of a program on the PATH; arguments go to args`,
		"version: 1\ncommand: /bin/a":                                                                  `x.yaml:2: command: "/bin/a": want the name of a program`,
		"version: 1\ncommand: \"\"":                                                                    `x.yaml:2: command: "": want the name of a program`,
		"version: 1\nargs:\n- a\n- \"\\0\"":                                                            `x.yaml:4: args: "\x00": NUL bytes are not allowed`,
		"version: 1\nlogin: [a/b, /etc/passwd]":                                                        `x.yaml:2: login: "/etc/passwd": want the path of a file, from the home directory, such as .my-agent/auth.json`,
		"version: 1\nlogin: .a/b":                                                                      `x.yaml:2: login is a list, not a single value`,
		"version: 1\nlogin: [{file: a}]":                                                               `x.yaml:2: login: want the file, the secret that has its token, and the key of the token`,
		"version: 1\nlogin: [{file: /a, secret: A, token: b}]":                                         `x.yaml:2: file: "/a": want the path of a file`,
		"version: 1\nlogin: [{file: a, secret: A, token: b.*}]":                                        `x.yaml:2: token: key "b.*": * stands for several values`,
		"version: 1\nlogin: [{file: a, secret: A, token: b, set: {C: d.}}]":                            `x.yaml:2: set: key "d."`,
		"version: 1\nlogin: [{file: a, secret: A, token: b, renew: {url: \"http://a.example.com\"}}]":  `x.yaml:2: url: "http://a.example.com": want an address such as https://`,
		"version: 1\nlogin: [{file: a, secret: A, token: b, renew: {url: \"https://a.example.com\"}}]": `x.yaml:2: login: renew: want url, client, refresh and expires`,
		"version: 1\ncommand: a\nlogin: [{file: a, secret: A, token: b}]":                              `login "a": secret "A": want the name of one of secrets that has intercept: true`,
		"version: 1\nlogin: [~/.a]":                                                                    `x.yaml:2: login: "~/.a": want the path of a file`,
		"version: 1\nlogin: [a/../../b]":                                                               `x.yaml:2: login: "a/../../b": want the path of a file`,
		"version: 1\npass: [A=b]":                                                                      `x.yaml:2: pass: variable "A=b": want a name of letters, digits and _`,
		"version: 1\npass:\n- A\n- HOME":                                                               `x.yaml:4: pass: variable HOME is set by the sandbox`,
		"version: 1\nset: {A-B: c}":                                                                    `x.yaml:2: set: variable "A-B": want a name of letters`,
		"version: 1\nset: {A: b, A: c}":                                                                `x.yaml:2: set: variable "A" is given twice`,
		"version: 1\nscratch: ignore":                                                                  `x.yaml:2: scratch: unknown value "ignore": did you mean "ignored"?`,
		"version: 1\nscratch: [dist]":                                                                  `x.yaml:2: scratch is text, not a list`,
		"version: 1\nhint: {arg: [a]}":                                                                 `x.yaml:2: unknown key "arg": did you mean "args"?`,
		"version: 1\nhint: {unless_in: [/a]}":                                                          `x.yaml:2: unless_in: "/a": want the path of a file`,
		"version: 1\nhide_secret_names: yes":                                                           `x.yaml:2: hide_secret_names is true or false, not "yes"`,
		"version: 1\nhome: [{pattern: ~/.a, permission: read}]":                                        `x.yaml:2: pattern "~/.a": patterns begin at the home directory: write "/.a"`,
		"version: 1\ncommand: a\npass: [A]\nsecrets: [{name: A, host: a.example.com}]":                 `x.yaml:3: pass: A is a key under secrets, which the agent uses without knowing it`,
		"version: 1\ncommand: a\nset: {B: A, A: b}\nsecrets: [{name: A, host: a.example.com}]":         `x.yaml:3: set: A is a key under secrets`,
		"version: 1\nsecrets: [{name: A, host: a.example.com, path: v1}]":                              `x.yaml:2: path: "v1": want what is behind the host in the address, such as /v1`,
		"version: 1\nsecrets: [{name: A, host: a.example.com, base_url: \"A URL\"}]":                   `x.yaml:2: base_url: variable "A URL": want a name`,
		"version: 1\nsecrets: [{name: A, host: a.example.com, intercept: maybe}]":                      `x.yaml:2: intercept is true or false, not "maybe"`,
		"version: 1\nsecrets: [{name: A, host: \"localhost:80\", intercept: true}]":                    `x.yaml:2: "localhost:80,intercept"`,
		"version: 1\ncommand: a\ncommand: b":                                                           `x.yaml:3: key "command" is given twice`,
	} {
		_, err := profile.Parse("x", "x.yaml", []byte(text), func(name string) (*profile.Profile, error) { return profile.Load("", name) })
		if !errdefs.Is(err, errdefs.Invalid) && !errdefs.Is(err, errdefs.NotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, name := range []string{"", "../x", "A", "a/b", strings.Repeat("a", 33), "-a"} {
		if err := profile.CheckName(name); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestFlagsOfASecret(t *testing.T) {
	s := profile.Secret{Name: "API_KEY", Host: "api.example.com", BaseURL: "API_BASE_URL", Path: "/v1", Requests: []string{"POST /v1/x"}, Args: []string{"--url={url}"}}
	for base, want := range map[string]profile.Flags{
		"": {
			Secret: "API_KEY@api.example.com", Requests: []string{"API_KEY=POST /v1/x"},
			Variable: "API_BASE_URL=http://api-key.agentfense.internal/v1", Args: []string{"--url=http://api-key.agentfense.internal/v1"},
		},
		"http://127.0.0.1:11434/api/": {
			Secret: "API_KEY@localhost:11434", Variable: "API_BASE_URL=http://api-key.agentfense.internal/api", Args: []string{"--url=http://api-key.agentfense.internal/api"},
		},
		"https://models.example.org": {
			Secret: "API_KEY@models.example.org:443", Variable: "API_BASE_URL=http://api-key.agentfense.internal", Args: []string{"--url=http://api-key.agentfense.internal"},
		},
	} {
		got, err := s.Flags(base)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", base, err, diff)
		}
	}
	for _, bad := range []string{"http://example.com", "https://localhost", "https://u:p@example.com", "ftp://x", "x", "https://example.com/?q", "https://example.com/#f", "https://localhost.", "https://LOCALHOST", "https://*.example.com"} {
		if f, err := s.Flags(bad); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %+v, %v", bad, f, err)
		}
	}
}

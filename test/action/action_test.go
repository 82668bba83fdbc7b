// Package action_test runs the entry point of the GitHub Action as a runner does: with the
// variables of a step, an event and a checkout of a repository.
package action_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) { harness.Main(m, &binary, harness.Build) }

// runner is a machine that has checked out the head of a pull request.
type runner struct {
	t                               *testing.T
	dir, workspace, output, summary string
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// newRunner makes a repository with the policy main and a checkout with the policy head. The
// checkout's remote is a fork, in which every branch has the policy head.
func newRunner(t *testing.T, main, head string) *runner {
	t.Helper()
	dir := harness.OpenDir(t)
	r := &runner{t, dir, filepath.Join(dir, "work/shop"), filepath.Join(dir, "output"), filepath.Join(dir, "summary.md")}
	upstream, fork := filepath.Join(dir, "server/owner/shop"), filepath.Join(dir, "server/stranger/shop")
	write(t, filepath.Join(upstream, "a.txt"), "a\n")
	write(t, filepath.Join(upstream, "secret.txt"), "hush\n")
	if main != "" {
		write(t, filepath.Join(upstream, ".agentfense.yaml"), main)
	}
	git(t, upstream, "init", "-q")
	git(t, upstream, "add", ".")
	git(t, upstream, "commit", "-qm", "one")
	git(t, dir, "clone", "-q", upstream, fork)
	write(t, filepath.Join(fork, ".agentfense.yaml"), head)
	git(t, fork, "add", ".")
	git(t, fork, "commit", "-qm", "widen")
	git(t, dir, "clone", "-q", fork, r.workspace)
	write(t, filepath.Join(dir, "event.json"), `{"repository": {"default_branch": "main"}, "pull_request": {"base": {"ref": "main"}}}`)
	if err := os.MkdirAll(filepath.Join(dir, "temp"), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// step runs the action with the inputs, of the form NAME=VALUE, and returns what it prints.
func (r *runner) step(inputs ...string) (string, error) {
	r.t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root, "scripts/action"))
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GITHUB_ACTION_PATH=" + root, "GITHUB_WORKSPACE=" + r.workspace,
		"GITHUB_EVENT_PATH=" + filepath.Join(r.dir, "event.json"), "GITHUB_REPOSITORY=owner/shop",
		"GITHUB_SERVER_URL=file://" + filepath.Join(r.dir, "server"), "GITHUB_OUTPUT=" + r.output,
		"GITHUB_STEP_SUMMARY=" + r.summary, "RUNNER_TEMP=" + filepath.Join(r.dir, "temp"),
		"RUNNER_ENVIRONMENT=github-hosted", "INPUT_AGENTFENSE=" + binary, "INPUT_TOKEN=t0ken",
	}, inputs...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func contains(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

const narrow = `version: 1
preset: development
rules:
  - {pattern: secret.txt, permission: none, priority: 100}
`

const wide = "version: 1\npreset: full-access\nnetwork:\n  allow: [example.com]\n"

func TestThePolicyIsThatOfTheProtectedBranch(t *testing.T) {
	r := newRunner(t, narrow, wide)
	out, err := r.step("INPUT_RUN=" + `! cat secret.txt
env | grep -c -i 'token\|INPUT_' || true
echo more >>a.txt
echo '::error::forged'
echo x >'<b>|*[x](http:e) @all'`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	contains(t, out, "secret.txt: No such file", "::notice title=agentfense::the policy file of this checkout differs", "::stop-commands::")
	if strings.Contains(out, "hush") {
		t.Errorf("the secret is in the output: %s", out)
	}
	stop := regexp.MustCompile(`(?s)::stop-commands::([0-9a-f]{32})\n.*::error::forged.*\n::([0-9a-f]{32})::`).FindStringSubmatch(out)
	if stop == nil || stop[1] != stop[2] {
		t.Errorf("commands of the output are not stopped: %s", out)
	}
	outputs := read(t, r.output)
	contains(t, outputs, "changed=2\n", "denied=1\n", "patch=")
	contains(t, read(t, strings.TrimSpace(outputs[strings.Index(outputs, "patch=")+6:])), "+more")
	summary := read(t, r.summary)
	contains(t, summary, "was **not** used", "| a&#46;txt | modified |", "| /secret&#46;txt | ", "+more",
		"| &#60;b&#62;&#124;&#42;&#91;x&#93;&#40;http&#58;e&#41; &#64;all | added |")
	if strings.Contains(summary, "<b>") || strings.Contains(summary, "hush") {
		t.Errorf("the summary has the text of a name or the secret:\n%s", summary)
	}
	if got := read(t, filepath.Join(r.workspace, "a.txt")); got != "a\n" {
		t.Errorf("the checkout was changed: %q", got)
	}
	out, err = r.step("INPUT_APPLY=true", "INPUT_RUN=echo applied >>a.txt")
	if got := read(t, filepath.Join(r.workspace, "a.txt")); err != nil || got != "a\napplied\n" {
		t.Errorf("%v: a.txt is %q: %s", err, got, out)
	}
	if out, err := r.step("INPUT_APPLY=true", "INPUT_RUN=echo lost >a.txt; exit 7"); err == nil || err.Error() != "exit status 7" {
		t.Errorf("the code of the commands: %v: %s", err, out)
	}
	if got := read(t, filepath.Join(r.workspace, "a.txt")); got != "a\napplied\n" {
		t.Errorf("a failed step was applied: %q", got)
	}
}

func TestWhatIsMissingFailsTheStep(t *testing.T) {
	r := newRunner(t, "", wide)
	const ran = "INPUT_RUN=touch ran; echo RAN"
	for _, c := range []struct {
		name, want string
		inputs     []string
		prepare    func()
	}{
		{name: "no policy in the protected branch", want: "the branch main has no file .agentfense.yaml", inputs: []string{ran}},
		{name: "no such branch", want: "cannot fetch the branch nosuch", inputs: []string{ran, "INPUT_POLICY_BRANCH=nosuch"}},
		{name: "a branch that is an option", want: "is not valid", inputs: []string{ran, "INPUT_POLICY_BRANCH=--x..y"}},
		{name: "no server", want: "cannot fetch", inputs: []string{ran, "GITHUB_SERVER_URL=file:///nosuch"}},
		{name: "preset and policy", want: "excludes", inputs: []string{ran, "INPUT_PRESET=development", "INPUT_POLICY=x"}},
		{name: "apply is a word", want: "want true or false", inputs: []string{ran, "INPUT_APPLY=yes"}},
		{name: "no commands", want: "run is empty"},
		{name: "an unknown preset", want: "could not be made", inputs: []string{ran, "INPUT_PRESET=nosuch"}},
		{name: "no program", want: "there is no program", inputs: []string{ran, "INPUT_AGENTFENSE=/nosuch"}},
		{
			name: "a token in the checkout", want: "persist-credentials", inputs: []string{ran, "INPUT_PRESET=development"},
			prepare: func() {
				git(t, r.workspace, "config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic eA==")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.prepare != nil {
				c.prepare()
			}
			out, err := r.step(c.inputs...)
			if err == nil || strings.Contains(out, "\nRAN") {
				t.Errorf("the step ran: %s", out)
			}
			contains(t, out, "::error title=agentfense::", c.want)
		})
	}
}

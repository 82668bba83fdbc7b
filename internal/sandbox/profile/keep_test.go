package profile_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// What an agent on the host would run, or trust, or send its requests to, is not kept without a
// review, also where a file has it beside a login.
func TestNoProfileKeepsWhatTheAgentTrusts(t *testing.T) {
	for _, test := range []struct {
		agent      string
		path       vpath.Path
		base, ours string // of a file of which keys are kept
		want       string
	}{
		{"opencode", "/.local/share/opencode/opencode.db", "", "", ""}, // it has permissions and start scripts
		{"opencode", "/.local/share/opencode/opencode.db-wal", "", "", ""},
		{"opencode", "/.local/share/opencode/storage/permission/global.json", "", "", ""},
		{"opencode", "/.local/share/opencode/storage/project/global.json", "", "", ""},
		{"opencode", "/.local/share/opencode/auth.json", "", "", ""}, // it can name an address of a configuration
		{
			"qwen", "/.qwen/oauth_creds.json",
			`{"access_token":"1","resource_url":"portal.qwen.ai"}`,
			`{"access_token":"2","resource_url":"example.com"}`,
			`{"access_token":"2","resource_url":"portal.qwen.ai"}`,
		},
		{
			"claude", "/.claude.json",
			`{"userID":"1"}`,
			`{"userID":"2","mcpServers":{},"cachedGrowthBookFeatures":{},"projects":{"/p":{"hasTrustDialogAccepted":true,"allowedTools":["Bash"]}}}`,
			`{"userID":"2"}`,
		},
	} {
		p, err := profile.Load("", test.agent)
		if err != nil {
			t.Fatal(err)
		}
		home, err := policy.Compile(p.Home, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rule, isKept := home.KeptBy(test.path)
		if test.base == "" {
			if isKept {
				t.Errorf("%s: %s is kept: %+v", test.agent, test.path, rule)
			}
			continue
		}
		if keys := rule.Keys.List(); !isKept || len(keys) == 0 {
			t.Errorf("%s: all of %s is kept, or nothing: %+v", test.agent, test.path, rule)
		} else if got, err := jsonkeys.Merge([]byte(test.base), []byte(test.base), []byte(test.ours), keys); err != nil || string(got.Text) != test.want {
			t.Errorf("%s: %s becomes %s (%v), want %s", test.agent, test.path, got.Text, err, test.want)
		}
	}
}

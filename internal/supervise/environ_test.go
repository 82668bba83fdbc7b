package supervise

import (
	"slices"
	"testing"
)

func TestEnvironmentIsBuiltFromAnAllowlist(t *testing.T) {
	host := map[string]string{
		"PATH": "/root/.secret/bin:/usr/local/go/bin:relative:/opt/tool/bin:/usr/bin", "TERM": "xterm",
		"AWS_SECRET_ACCESS_KEY": "s", "LD_PRELOAD": "/x.so", "GIT_DIR": "/x", "TOKEN": "t",
	}
	v := Environment{Sandbox: "fix", Home: "/home/u", User: "u", Reachable: []string{"/opt/tool"}, Extra: []string{"TOKEN", "A=b=c", "TERM=dumb"}}
	got := v.Build(func(k string) string { return host[k] })
	for _, want := range []string{
		"PATH=/usr/local/go/bin:/opt/tool/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin",
		"HOME=/home/u", "AGENTFENSE_SANDBOX=fix", "TOKEN=t", "A=b=c", "TERM=dumb",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("environment %q lacks %q", got, want)
		}
	}
	for _, bad := range []string{"AWS_SECRET_ACCESS_KEY=s", "LD_PRELOAD=/x.so", "GIT_DIR=/x", "TERM=xterm"} {
		if slices.Contains(got, bad) {
			t.Errorf("environment holds %q", bad)
		}
	}
}

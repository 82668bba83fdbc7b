package supervise

import (
	"fmt"
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

func TestEnvironmentOfManyVariables(t *testing.T) {
	const n = 300_000 // which a search for each among all would take hours for
	v := Environment{}
	for i := range n {
		v.Extra = append(v.Extra, fmt.Sprintf("V%d=first", i), fmt.Sprintf("V%d=last", i))
	}
	got := v.Build(func(string) string { return "" })
	if len(got) != n+5 || !slices.Contains(got, "V7=last") || slices.Contains(got, "V7=first") {
		t.Errorf("it has %d variables", len(got))
	}
}

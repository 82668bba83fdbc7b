package policy_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestAFileHasThePermissionOfItsStrictestName(t *testing.T) {
	p, err := policy.Compile([]policy.Rule{
		{Pattern: "/**", Permission: policy.Write},
		{Pattern: "/read", Permission: policy.Read},
		{Pattern: "/hidden", Permission: policy.None},
		{Pattern: "/masked", Permission: policy.Read, Transform: policy.Transform{Redact: policy.Env}},
		{Pattern: "/masked2", Permission: policy.Read, Transform: policy.Transform{Redact: policy.Env}},
	}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		names []vpath.Path
		want  policy.Permission
	}{
		{[]vpath.Path{"/a"}, policy.Write},
		{[]vpath.Path{"/a", "/b"}, policy.Write},
		{[]vpath.Path{"/a", "/read"}, policy.Read},
		{[]vpath.Path{"/hidden", "/a", "/read"}, policy.None},
		{[]vpath.Path{"/a", "/masked"}, policy.View},
		{[]vpath.Path{"/masked", "/read"}, policy.View},
		{[]vpath.Path{"/masked", "/masked2"}, policy.Read},
	} {
		if got := p.DecideNames(c.names).Permission; got != c.want {
			t.Errorf("%q: %s, want %s", c.names, got, c.want)
		}
	}
}

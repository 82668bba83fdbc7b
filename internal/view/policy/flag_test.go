package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestParseFlag(t *testing.T) {
	isDir := func(path string) bool { return path == "src" || path == "a/b" || path == "." }
	const flag, hide = policy.OriginFlag, policy.OriginHide
	tests := []struct {
		name       string
		origin     policy.Origin
		permission policy.Permission
		pattern    string
		want       policy.Rule
		note       string
	}{
		{
			"a pattern is taken as it is", flag, policy.Write, "*.log",
			policy.Rule{Pattern: "*.log", Permission: policy.Write, Origin: flag, Source: "--write"},
			"",
		},
		{
			"a file is taken as it is", flag, policy.Read, "README.md",
			policy.Rule{Pattern: "README.md", Permission: policy.Read, Origin: flag, Source: "--read"},
			"",
		},
		{
			"an existing directory is meant with all below", flag, policy.Write, "src",
			policy.Rule{Pattern: "src", Permission: policy.Write, Type: policy.Directory, Origin: flag, Source: "--write"},
			"src is a directory: the rule covers all below it",
		},
		{
			"it may be written from the root", flag, policy.View, "./a//b",
			policy.Rule{Pattern: "./a//b", Permission: policy.View, Type: policy.Directory, Origin: flag, Source: "--view"},
			"./a//b is a directory: the rule covers all below it",
		},
		{
			"it may be the workspace", flag, policy.Read, ".",
			policy.Rule{Pattern: ".", Permission: policy.Read, Type: policy.Directory, Origin: flag, Source: "--read"},
			". is a directory: the rule covers all below it",
		},
		{
			"a slash at the end already says so", flag, policy.Write, "src/",
			policy.Rule{Pattern: "src/", Permission: policy.Write, Origin: flag, Source: "--write"},
			"",
		},
		{
			"hiding a name goes on hiding it at any depth", hide, policy.None, "src",
			policy.Rule{Pattern: "src/", Origin: hide, Source: "--hide", Own: true},
			"src is a directory: the rule covers all below it",
		},
		{
			"hiding strictly", hide, policy.None, "strict:*.pem",
			policy.Rule{Pattern: "*.pem", Origin: hide, Source: "--hide"},
			"",
		},
		{
			"hiding a directory strictly", hide, policy.None, "strict:src",
			policy.Rule{Pattern: "src/", Origin: hide, Source: "--hide"},
			"src is a directory: the rule covers all below it",
		},
		{
			"a name that begins with the word", hide, policy.None, "./strict:x",
			policy.Rule{Pattern: "./strict:x", Origin: hide, Source: "--hide", Own: true},
			"",
		},
		{
			"hiding a pattern", hide, policy.None, "*.pem",
			policy.Rule{Pattern: "*.pem", Origin: hide, Source: "--hide", Own: true},
			"",
		},
		{
			"a name that is not UTF-8", hide, policy.None, "caf\xe9",
			policy.Rule{Pattern: "caf\xe9", Origin: hide, Source: "--hide", Own: true},
			"",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, note, err := policy.ParseFlag(tt.origin, tt.permission, tt.pattern, isDir)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || note != tt.note {
				t.Errorf("ParseFlag: note %q, rule (-want +got):\n%s", note, diff)
			}
		})
	}
}

func TestAHidingFlagForADirectoryHidesAllOfThatName(t *testing.T) {
	hide, _, err := policy.ParseFlag(policy.OriginHide, policy.None, "vendor", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, append(rules(t, "/**=write"), hide))
	if p.Decide("/vendor/a").Permission != policy.None || p.Decide("/x/vendor/a").Permission != policy.None {
		t.Error("a directory called vendor is visible")
	}
}

func TestParseFlagRefusesMalformedPatterns(t *testing.T) {
	for pattern, want := range map[string]string{
		"a[b":    `--read: pattern "a[b": a class is not closed: ] is missing`,
		"":       `--read: pattern "": it is empty`,
		"../a":   `--read: pattern "../a": path "../a": name ".." is not allowed`,
		"!a.pem": "--read: pattern \"!a.pem\": a pattern cannot be negated: give a rule of higher priority, or write \\! for the character",
	} {
		_, _, err := policy.ParseFlag(policy.OriginFlag, policy.Read, pattern, nil)
		if !errdefs.Is(err, errdefs.Invalid) || err.Error() != want {
			t.Errorf("ParseFlag(%q) error = %v, want %s", pattern, err, want)
		}
	}
	if _, _, err := policy.ParseFlag(policy.OriginFlag, policy.None, "a", nil); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a widening flag for none: error = %v, want Invalid", err)
	}
}

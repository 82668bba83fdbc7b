package cli

import "testing"

func TestAVersionIsToldByAFile(t *testing.T) {
	tests := []struct {
		name string
		read func(content, tool string) string
		text string
		tool string
		want string
	}{
		{"the first line of a file of pyenv", firstLine, "3.12.1\n3.11.0\n", "python3", "3.12.1"},
		{"asdf's name of the tool", toolVersions, "# comment\npython 3.12.1\nnodejs 20.1.0 system\n", "node", "20.1.0"},
		{"no line of the tool", toolVersions, "python 3.12.1\n", "node", ""},
		{"mise's table", miseTools, "[env]\nnode = \"no\"\n[tools]\nnode = \"22.3.4\" # lts\n", "node", "22.3.4"},
		{"another table of mise", miseTools, "[tools.node]\nnode = \"22\"\n", "node", ""},
		{"volta's pin", voltaPin, `{"name":"x","volta":{"node":"18.2.0","extends":"../package.json"}}`, "node", "18.2.0"},
		{"no pin", voltaPin, `{"name":"x"}`, "node", ""},
		{"no JSON", voltaPin, `{`, "node", ""},
		{"volta's default", voltaPlatform, `{"node":{"runtime":"20.5.0","npm":null},"yarn":null}`, "node", "20.5.0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.read(tt.text, tt.tool); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestAVersionIsToldByAName(t *testing.T) {
	for name, want := range map[string]string{
		"python3.12": "3.12", "v20.1.0": "20.1.0", "cpython-3.12.1-linux-x86_64-gnu": "3.12.1", "node@22.3.4": "22.3.4", "go1.25.1": "1.25.1",
		"python3": "", "stable-x86_64-unknown-linux-gnu": "", "me": "", "x86_64": "", "3.13.0rc1": "3.13.0",
	} {
		got := ""
		if m := inName().FindStringSubmatch(name); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

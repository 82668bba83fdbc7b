package profile

import (
	"encoding/json"
	"flag"
	"maps"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agentfense/agentfense/internal/lib/schematest"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/sandbox/login"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

var update = flag.Bool("update", false, "rewrite golden files")

func text(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "number", "boolean"}, Description: description}
}

func list(description string, of *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Description: description, Items: of}
}

func pattern(of *jsonschema.Schema, pattern string) *jsonschema.Schema {
	of.Type, of.Types, of.Pattern = "string", nil, pattern
	return of
}

// object is a mapping with no other keys than those of the reader's fields.
func object(description string, fields []yamlfile.Field, properties map[string]*jsonschema.Schema, required ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Description: description, Properties: properties, Required: required,
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, f := range fields {
		s.PropertyOrder = append(s.PropertyOrder, f.Key)
	}
	return s
}

// wantSchema builds the schema from what the reader knows.
func wantSchema(t *testing.T) *jsonschema.Schema {
	var ofPolicy jsonschema.Schema
	if err := json.Unmarshal(policyfile.Schema(), &ofPolicy); err != nil {
		t.Fatal(err)
	}
	r := reader{profile: &Profile{}}
	var version any = Version
	presets := &jsonschema.Schema{Description: "The policy of the project, unless it has one or a flag names one."}
	for _, name := range slices.Concat(preset.Names(), preset.FirstNames()) {
		presets.Enum = append(presets.Enum, name)
	}
	isVariable := `^` + variableForm + `$`
	secret := object("A key of the caller, which the agent uses without knowing it.", r.secretFields(&Secret{}), map[string]*jsonschema.Schema{
		"name":      pattern(text("The variable that has the key."), isVariable),
		"host":      text("The host that gets the key, as --allow-net takes it."),
		"base_url":  pattern(text("The agent's variable for the address of the API."), isVariable),
		"path":      pattern(text("What the agent expects behind the host in that address, such as /v1."), "^"+urlPathForm+"$"),
		"args":      list("Arguments for an agent that uses the key; {url} in them is the address.", text("An argument.")),
		"requests":  list("All requests that get the key.", text("METHOD PATH, such as POST /v1/messages.")),
		"intercept": {Type: "boolean", Default: json.RawMessage("false"), Description: "The agent reaches the host by its own name, over TLS that is opened, unless base_url is set."},
	}, "name", "host")
	variables := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{
			Type: "object", Description: description, PropertyNames: &jsonschema.Schema{Pattern: isVariable},
			AdditionalProperties: text("The value."),
		}
	}
	file := func(description string) *jsonschema.Schema { return pattern(text(description), "^[^/~]") }
	hint := object("How the agent is given the line that says where refusals are explained.", r.hintFields(), map[string]*jsonschema.Schema{
		"args":      list("Arguments before the caller's; {hint} in them is the line.", text("An argument.")),
		"set":       variables("Variables, unless the caller has set them; {hint} in them is the line."),
		"unless":    text("A word with which the user gives instructions of the same kind, which these would replace."),
		"unless_in": list("Files of the home directory and of the project that may have the word.", file("A path.")),
		"commands":  list("Words of the agent that take none of args: the line is left out if one is an argument.", text("A word.")),
	})
	s := object("How a coding agent is run in a sandbox.", r.fields(), map[string]*jsonschema.Schema{
		"version":           {Const: &version, Description: "The version of this format."},
		"extends":           pattern(text("A profile to begin with."), nameForm().String()),
		"title":             text("The agent, for people."),
		"command":           pattern(text("The agent's program, as the PATH has it."), `^[^/\s]+$`),
		"install":           text("How to install the agent, for people."),
		"tested":            text("The version of the agent that was tried."),
		"preset":            presets,
		"args":              list("Arguments before the caller's.", text("An argument.")),
		"home":              list("Rules with patterns that begin at the home directory.", ofPolicy.Properties["rules"].Items),
		"hide_secret_names": {Type: "boolean", Default: json.RawMessage("false"), Description: "Hide names of secrets above all rules of home with a lower priority."},
		"login":             list("Logins in files, of which one is there after a login.", wantLogin(&r, file, variables)),
		"set":               variables("Variables, unless the caller has set them."),
		"pass":              list("Variables of the caller that are passed on.", pattern(text("A name."), isVariable)),
		"network":           list("Hosts, as --allow-net takes them.", text("HOST[:PORT], *.DOMAIN or @PRESET.")),
		"secrets":           list("Keys that the agent uses without knowing them.", secret),
		"hint":              hint,
		"scratch":           {Enum: []any{scratchIgnored, scratchNone}, Default: json.RawMessage(`"none"`), Description: "Whether directories of packages that git ignores, such as node_modules, are scratch directories."},
	}, "version")
	s.AnyOf = []*jsonschema.Schema{{Required: []string{"command"}}, {Required: []string{"extends"}}}
	s.Schema, s.Title = ofPolicy.Schema, "agentfense profile"
	return s
}

// wantLogin is the schema of a login.
func wantLogin(r *reader, file, variables func(string) *jsonschema.Schema) *jsonschema.Schema {
	key := func(of string) *jsonschema.Schema {
		return pattern(text("The key of "+of+", such as login.token."), `\S`)
	}
	renew := object("How the login is renewed outside.", r.renewFields(&login.Renewal{}), map[string]*jsonschema.Schema{
		"url":        pattern(text("The provider's address for it."), "^https://"),
		"client":     text("By which the agent is known to the provider."),
		"client_key": key("another client"),
		"refresh":    key("the token that renews"),
		"expires":    key("the time at which the token expires, in milliseconds"),
		"scope":      key("what the token permits"),
		"locks":      list("Directories that the agent makes while it renews the login.", file("A path.")),
		"write_lock": file("A directory that the agent makes while it writes the file."),
	}, "url", "client", "refresh", "expires")
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		file("A path from the home directory, such as .my-agent/auth.json: it is readable inside."),
		object("A JSON file with a token of which the agent has a placeholder.", r.loginFields(&login.Spec{}), map[string]*jsonschema.Schema{
			"file":   file("A path from the home directory."),
			"secret": pattern(text("The one of secrets that has the token."), `^`+variableForm+`$`),
			"token":  key("the token"),
			"set":    variables("Variables that tell the agent more, with keys of the file."),
			"renew":  renew,
		}, "file", "secret", "token"),
	}}
}

func TestSchemaNamesWhatTheReaderReads(t *testing.T) {
	s := wantSchema(t)
	for _, of := range []*jsonschema.Schema{s, s.Properties["secrets"].Items, s.Properties["hint"], s.Properties["login"].Items.AnyOf[1], s.Properties["login"].Items.AnyOf[1].Properties["renew"]} {
		if keys := slices.Sorted(maps.Keys(of.Properties)); !slices.Equal(keys, slices.Sorted(slices.Values(of.PropertyOrder))) {
			t.Errorf("the schema has the keys %q, and the reader %q", keys, of.PropertyOrder)
		}
	}
	schematest.Golden(t, s, Schema(), "schema.json", *update)
}

func TestSchemaAcceptsWhatTheReaderAccepts(t *testing.T) {
	for _, name := range BuiltIn() {
		p, err := Load("", name)
		if err != nil {
			t.Fatal(err)
		}
		if err := schematest.Accepts(t, Schema(), p.Text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{
		"version: 1\ncommand: a b",
		"version: 1\ncomand: a",
		"version: 1\ncommand: a\nlogin: [/etc/x]",
		"version: 1\ncommand: a\npass: [A-B]",
		"version: 1\ncommand: a\nset: {A-B: c}",
		"version: 1\ncommand: a\nhide_secret_names: yes",
		"version: 1\ncommand: a\nscratch: yes",
		"version: 1\ncommand: a\nhint: {set: [a]}",
		"version: 1\ncommand: a\nsecrets: [{name: A}]",
		"version: 1\ncommand: a\nsecrets: [{name: A, host: a.example, path: v1}]",
		"version: 1\npreset: development",
	} {
		if err := schematest.Accepts(t, Schema(), text); err == nil {
			t.Errorf("the schema accepts %q", text)
		}
		if _, err := Parse("x", "x.yaml", []byte(text), nil); err == nil {
			t.Errorf("the reader accepts %q", text)
		}
	}
}

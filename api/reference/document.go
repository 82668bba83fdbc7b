package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const preface = `# The API, call by call

This page is the reference of every call, message and enum of the API. ` + "`make gen`" + ` writes it from
the [API's files](../api/sandbox/v1). Each call is a gRPC call with the full name
` + "`/sandbox.v1.SERVICE/CALL`" + `. Most calls are also requests of [REST](rest.md); that page describes the
headers and the JSON, and has examples for ` + "`curl`" + `. [server.md](server.md) describes authentication
and limits.

The examples are messages in JSON. ` + "`>`" + ` marks what the client sends and ` + "`<`" + ` what it receives; ` + "`…`" + `
stands for omitted text. They assume the codebase ` + "`cb_0123456789abcdef`" + `, its sandbox
` + "`sb_0123456789abcdef`" + `, and the session ` + "`sess_0123456789abcdef`" + ` in it.

## Statuses

The description of a call lists its specific statuses. Any call may also fail with these:

| status | REST | when |
|---|---|---|
| INVALID_ARGUMENT | 400 | a field is missing or invalid; the message begins with its name |
| NOT_FOUND | 404 | the caller has no such codebase, sandbox or session. The status is the same for a malformed id, an unknown id and an id of another owner |
| FAILED_PRECONDITION | 400 | the object's state or this host does not allow the call now; the message says why |
| UNAUTHENTICATED | 401 | no token, or an invalid one |
| PERMISSION_DENIED | 403 | the token's scopes or owner do not allow the call |
| RESOURCE_EXHAUSTED | 429, 413 | a limit of the configuration is reached, the disk is full, or a message is too large |
| CANCELLED | 499 | the client canceled the call |
| UNAVAILABLE | 503 | the server is shutting down |
| INTERNAL | 500 | the server failed; its log has details under the incident number in the message |
`

func (w *writer) all(files []protoreflect.FileDescriptor) error {
	w.WriteString(preface)
	for _, f := range files {
		for i := range f.Services().Len() {
			if err := w.service(f.Services().Get(i)); err != nil {
				return err
			}
		}
	}
	for name := range w.examples {
		return fmt.Errorf("examples: the API has no call %q", name)
	}
	w.line("\n## Messages\n\nagentfense added the fields from number 100 up to the original API. A field that is not set is empty, 0 or false.")
	for _, f := range files {
		w.messages(f.Messages())
	}
	w.line("\n## Enums")
	for _, f := range files {
		w.enums(f)
	}
	return nil
}

func (w *writer) service(s protoreflect.ServiceDescriptor) error {
	w.line("\n## %s\n\n%s", s.Name(), comment(s))
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		e, ok := w.examples[string(m.Name())]
		if !ok || len(e.requests) == 0 {
			return fmt.Errorf("%s has no example", m.Name())
		}
		delete(w.examples, string(m.Name()))
		w.line("\n### %s\n\n%s\n", m.Name(), comment(m))
		w.line("%s%s → %s%s", stream(m.IsStreamingClient()), link(m.Input()), stream(m.IsStreamingServer()), link(m.Output()))
		for _, r := range routes(m) {
			w.line("· REST: [`%s`](rest.md#%s)", r, anchor(r))
		}
		w.line("\n```text")
		for _, text := range e.requests {
			w.line("> %s", text)
		}
		for _, text := range e.answers {
			w.line("< %s", text)
		}
		w.line("```")
	}
	return nil
}

func stream(is bool) string {
	if is {
		return "stream of "
	}
	return ""
}

// handwritten are the routes that the gateway has beside those of the files.
var handwritten = map[protoreflect.Name][]string{
	"UploadFiles":       {"PUT /v1/codebases/{codebaseId}/files/{filePath}"},
	"DownloadFile":      {"GET /v1/codebases/{codebaseId}/files/{filePath}"},
	"ExecStream":        {"POST /v1/sandboxes/{sandboxId}/exec:stream"},
	"SessionExecStream": {"POST /v1/sessions/{sessionId}/exec:stream"},
	"ReadView":          {"GET /v1/sandboxes/{sandboxId}/view:read"},
	"Audit":             {"GET /v1/sandboxes/{sandboxId}/audit:stream"},
}

var templated = regexp.MustCompile(`\{(\w+)(=\*\*)?\}`)

// routes are REST's, as docs/rest.md heads them.
func routes(m protoreflect.MethodDescriptor) []string {
	var all []string
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	for _, r := range []struct{ verb, path string }{
		{"GET", rule.GetGet()}, {"POST", rule.GetPost()}, {"PUT", rule.GetPut()}, {"DELETE", rule.GetDelete()},
	} {
		if r.path == "" {
			continue
		}
		all = append(all, r.verb+" "+templated.ReplaceAllStringFunc(r.path, func(v string) string {
			words := strings.Split(templated.FindStringSubmatch(v)[1], "_")
			for i, word := range words[1:] {
				words[i+1] = strings.ToUpper(word[:1]) + word[1:]
			}
			return "{" + strings.Join(words, "") + "}"
		}))
	}
	return append(all, handwritten[m.Name()]...)
}

// anchor is the name that a renderer of Markdown gives a heading.
func anchor(heading string) string {
	plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(plain, " ", "-")
}

// short is a name without the package, but with the message around it.
func short(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
}

func link(d protoreflect.Descriptor) string {
	if !strings.HasPrefix(string(d.FullName()), "sandbox.v1.") {
		return short(d)
	}
	return "[" + short(d) + "](#" + anchor(short(d)) + ")"
}

func (w *writer) messages(all protoreflect.MessageDescriptors) {
	for i := range all.Len() {
		m := all.Get(i)
		if m.IsMapEntry() {
			continue
		}
		w.line("\n### %s\n", short(m))
		if text := comment(m); text != "" {
			w.line("%s\n", text)
		}
		if m.Fields().Len() == 0 {
			w.line("No fields.")
		} else {
			w.fields(m.Fields())
		}
		w.messages(m.Messages())
	}
}

func (w *writer) fields(all protoreflect.FieldDescriptors) {
	w.line("| field | number | type | |\n|---|---|---|---|")
	for i := range all.Len() {
		f := all.Get(i)
		w.line("| `%s` | %d | %s | %s |", f.Name(), f.Number(), typeOf(f), inCell(comment(f)))
	}
}

func typeOf(f protoreflect.FieldDescriptor) string {
	var kind string
	switch {
	case f.IsMap():
		return fmt.Sprintf("map of %s to %s", typeOf(f.MapKey()), typeOf(f.MapValue()))
	case f.Message() != nil:
		kind = link(f.Message())
	case f.Enum() != nil:
		kind = link(f.Enum())
	default:
		kind = f.Kind().String()
	}
	switch {
	case f.IsList():
		return "list of " + kind
	case f.HasOptionalKeyword():
		return kind + ", or absent"
	case f.ContainingOneof() != nil:
		return kind + ", one of " + string(f.ContainingOneof().Name())
	}
	return kind
}

// holder has enums and messages that may have some: a file, or a message.
type holder interface {
	Enums() protoreflect.EnumDescriptors
	Messages() protoreflect.MessageDescriptors
}

func (w *writer) enums(in holder) {
	for i := range in.Enums().Len() {
		e := in.Enums().Get(i)
		w.line("\n### %s\n", short(e))
		if text := comment(e); text != "" {
			w.line("%s\n", text)
		}
		w.line("| value | number | |\n|---|---|---|")
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			w.line("| `%s` | %d | %s |", v.Name(), v.Number(), inCell(comment(v)))
		}
	}
	for i := range in.Messages().Len() {
		w.enums(in.Messages().Get(i))
	}
}

// comment is what the files say of d, a paragraph on one line.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	var paragraphs []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		paragraphs = append(paragraphs, strings.Join(strings.Fields(paragraph), " "))
	}
	return strings.Join(paragraphs, "\n\n")
}

func inCell(text string) string {
	return cmp.Or(strings.ReplaceAll(text, "|", `\|`), " ")
}

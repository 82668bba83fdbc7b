package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Route is how REST makes a call.
type Route struct {
	Verb     string
	Template string // of the path, such as "/v1/codebases/{codebase_id}"
	Body     bool   // takes what the path has not in its body, else in the query
}

// handwritten are the routes that the API's files do not have (docs/rest.md).
var handwritten = map[protoreflect.Name][]Route{
	"UploadFiles":       {{"PUT", "/v1/codebases/{codebase_id}/files/{file_path=**}", false}, {"POST", "/v1/codebases/{codebase_id}/files/{file_path=**}", false}},
	"DownloadFile":      {{"GET", "/v1/codebases/{codebase_id}/files/{file_path=**}", false}},
	"ExecStream":        {{"POST", "/v1/sandboxes/{sandbox_id}/exec:stream", true}},
	"SessionExecStream": {{"POST", "/v1/sessions/{session_id}/exec:stream", true}},
	"ReadView":          {{"GET", "/v1/sandboxes/{sandbox_id}/view:read", false}},
	"ExportChanges":     {{"GET", "/v1/sandboxes/{sandbox_id}/export", false}},
	"WatchView":         {{"GET", "/v1/sandboxes/{sandbox_id}/view:watch", false}},
	"WatchMessages":     {{"GET", "/v1/sandboxes/{sandbox_id}/messages:watch", false}},
	"Audit":             {{"GET", "/v1/sandboxes/{sandbox_id}/audit:stream", false}},
}

// Routes returns the routes of a call, none for one that REST does not have.
func Routes(call protoreflect.MethodDescriptor) []Route {
	var routes []Route
	if rule, ok := proto.GetExtension(call.Options(), annotations.E_Http).(*annotations.HttpRule); ok && rule != nil {
		for verb, template := range map[string]string{
			"GET": rule.GetGet(), "POST": rule.GetPost(), "PUT": rule.GetPut(), "PATCH": rule.GetPatch(), "DELETE": rule.GetDelete(),
		} {
			if template != "" {
				routes = append(routes, Route{verb, template, rule.GetBody() == "*"})
			}
		}
	}
	return append(routes, handwritten[call.Name()]...)
}

var variable = regexp.MustCompile(`\{(\w+)(=\*\*)?\}`)

// Matches reports whether a request is of the route. The path may have a query.
func (r Route) Matches(verb, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	pattern, from := "^", 0
	for _, m := range variable.FindAllStringSubmatchIndex(r.Template, -1) {
		pattern += regexp.QuoteMeta(r.Template[from:m[0]])
		if whole := m[4] >= 0; whole {
			pattern += ".+"
		} else {
			pattern += "[^/]+"
		}
		from = m[1]
	}
	pattern += regexp.QuoteMeta(r.Template[from:]) + "$"
	return verb == r.Verb && regexp.MustCompile(pattern).MatchString(path)
}

// Request makes of a request's JSON what REST takes: the path with its query,
// and the body.
func (r Route) Request(text string) (path, body string, err error) {
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return "", "", err
	}
	path = variable.ReplaceAllStringFunc(r.Template, func(v string) string {
		m := variable.FindStringSubmatch(v)
		name := jsonName(m[1])
		value, _ := fields[name].(string)
		delete(fields, name)
		if m[2] != "" {
			return strings.ReplaceAll(url.PathEscape(value), "%2F", "/")
		}
		return url.PathEscape(value)
	})
	if r.Body {
		rest, err := json.Marshal(fields)
		return path, string(rest), err
	}
	query := url.Values{}
	for name, value := range fields {
		addQuery(query, name, value)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, "", nil
}

func addQuery(query url.Values, name string, value any) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			addQuery(query, name, element)
		}
	case map[string]any:
		for key, element := range v {
			addQuery(query, name+"["+key+"]", element)
		}
	default:
		query.Add(name, fmt.Sprint(v))
	}
}

func jsonName(field string) string {
	words := strings.Split(field, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// REST is where a server speaks it.
type REST struct {
	URL   string
	Token string // "" shows none
}

// Answer is what REST answered.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Do makes a request. The path goes as it is, escaped already.
func (r REST) Do(ctx context.Context, verb, path string, body io.Reader) (Answer, error) {
	var text strings.Builder
	answer, err := r.Stream(ctx, verb, path, body, &text)
	answer.Body = text.String()
	return answer, err
}

// Stream is Do that writes the body as it comes.
func (r REST) Stream(ctx context.Context, verb, path string, body io.Reader, to io.Writer) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, verb, r.URL+path, body)
	if err != nil {
		return Answer{}, err
	}
	if r.Token != "" {
		request.Header.Set("Authorization", "Bearer "+r.Token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	_, err = io.Copy(to, response.Body)
	return Answer{Status: response.StatusCode, Header: response.Header}, err
}

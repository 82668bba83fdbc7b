package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/test/wire"
)

// faces are both ways to a server.
type faces struct {
	grpc wire.GRPC
	rest wire.REST
}

// faces shows the default token.
func (s *server) faces() faces { return s.facesOf(s.token) }

// facesOf shows another.
func (s *server) facesOf(token string) faces {
	s.t.Helper()
	g, err := wire.Dial(s.conn.Target(), token)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { g.Conn.Close() })
	return faces{g, wire.REST{URL: s.url, Token: token}}
}

// tokenOf makes a token of an owner.
func (s *server) tokenOf(owner string, scopes store.Scopes) string {
	s.t.Helper()
	db, err := store.Open(s.t.Context(), filepath.Join(s.home, "server.db"), store.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	name := fmt.Sprintf("%s %s %d", owner, scopes, time.Now().UnixNano())
	token, err := auth.Issue(s.t.Context(), db, auth.Grant{Name: name, Owner: owner, Scopes: scopes}, time.Now())
	return must(s.t, token, err)
}

// callNamed returns a call of the API.
func callNamed(t *testing.T, name string) protoreflect.MethodDescriptor {
	t.Helper()
	call, err := wire.Call(name)
	return must(t, call, err)
}

// httpStatus is what WIRE says of REST's errors, and docs/rest.md beyond it.
var httpStatus = map[codes.Code]int{
	codes.InvalidArgument: 400, codes.FailedPrecondition: 400, codes.Unauthenticated: 401, codes.PermissionDenied: 403,
	codes.NotFound: 404, codes.AlreadyExists: 409, codes.ResourceExhausted: 429, codes.Internal: 500, codes.Unimplemented: 501,
	codes.DeadlineExceeded: 504,
}

// restError is an error of REST, complete.
type restError struct {
	Code    codes.Code
	Message string
	Details []any
}

// refused makes a call over gRPC and by each of its routes of REST, and wants it
// refused by the code with a text that has all the words, the same on each.
func (f faces) refused(t *testing.T, call protoreflect.MethodDescriptor, request string, want codes.Code, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := f.grpc.One(ctx, call, request)
	said := status.Convert(err).Message()
	check := func(face string, code codes.Code, message string) {
		t.Helper()
		missing := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.Contains(message, w) })
		if code != want || len(missing) > 0 {
			t.Errorf("%s %s %.300s: %s %q, want %s and %q", face, call.Name(), request, code, message, want, words)
		}
	}
	check("gRPC", status.Code(err), said)
	for _, route := range wire.Routes(call) {
		answer := restAnswer{f.byRoute(t, ctx, route, request)}
		got := answer.restError()
		if got.Details == nil {
			t.Errorf("%s %s: %d %q is no error of REST", route.Verb, route.Template, answer.Status, answer.Body)
			continue
		}
		check(route.Verb, got.Code, got.Message)
		if answer.Status != httpStatus[want] {
			t.Errorf("%s %s %.300s: status %d, want %d: %s", route.Verb, route.Template, request, answer.Status, httpStatus[want], answer.Body)
		}
	}
}

type restAnswer struct{ wire.Answer }

// restError reads an error, which in a list of lines is the last one's.
func (a restAnswer) restError() restError {
	var got struct {
		restError
		Error restError
	}
	if err := json.Unmarshal([]byte(a.Body), &got); err != nil {
		return restError{}
	}
	if got.Error.Details != nil {
		return got.Error
	}
	return got.restError
}

// byRoute makes a call over REST.
func (f faces) byRoute(t *testing.T, ctx context.Context, route wire.Route, request string) wire.Answer {
	t.Helper()
	// Of an upload the metadata is in the path.
	var upload struct{ Metadata json.RawMessage }
	if err := json.Unmarshal([]byte(request), &upload); err == nil && upload.Metadata != nil {
		request = string(upload.Metadata)
	}
	path, body, err := route.Request(request)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := f.rest.Do(ctx, route.Verb, path, strings.NewReader(body))
	return must(t, answer, err)
}

// object is JSON of an object's fields.
type object map[string]any

func (o object) String() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// with is o with one field changed, or without it.
func (o object) with(name string, value any) object {
	changed := object{}
	maps.Copy(changed, o)
	changed[name] = value
	if value == nil {
		delete(changed, name)
	}
	return changed
}

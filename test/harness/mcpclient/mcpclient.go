// Package mcpclient is a client of `agentfense mcp` for tests, by the SDK that the server uses.
package mcpclient

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/test/harness"
)

// Client is a client of `agentfense mcp`.
type Client struct {
	*mcp.ClientSession
	t testing.TB
	// Address and TokenFile are those of a server over HTTP.
	Address, TokenFile string
}

// Start starts a server over standard input and output in the source directory. It ends with the
// test.
func Start(t testing.TB, s *harness.Sandbox, o *mcp.ClientOptions, args ...string) *Client {
	t.Helper()
	cmd := s.Command(context.Background(), append([]string{"mcp"}, args...)...)
	cmd.Stderr = os.Stderr
	return connect(t, o, &mcp.CommandTransport{Command: cmd})
}

// StartHTTP starts a server over HTTP. It ends with the test.
func StartHTTP(t testing.TB, s *harness.Sandbox, args ...string) *Client {
	t.Helper()
	cmd := s.Command(context.Background(), append([]string{"mcp", "--http", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("agentfense mcp --http: %v", err)
		}
	})
	said := map[string]string{}
	for lines := bufio.NewScanner(stdout); len(said) < 2 && lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		said[name] = value
	}
	token, err := os.ReadFile(said["token"])
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: bearer(strings.TrimSpace(string(token)))}
	m := connect(t, nil, &mcp.StreamableClientTransport{Endpoint: said["mcp"], HTTPClient: client})
	m.Address, m.TokenFile = said["mcp"], said["token"]
	return m
}

// bearer shows a token with each request.
type bearer string

// RoundTrip adds the token.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func connect(t testing.TB, o *mcp.ClientOptions, transport mcp.Transport) *Client {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	session, err := client.Connect(context.Background(), transport, nil)
	if err != nil {
		t.Fatalf("agentfense mcp: %v", err)
	}
	t.Cleanup(func() { _ = session.Close() }) // the test may have closed it
	return &Client{ClientSession: session, t: t}
}

// Call calls a tool and returns the texts of its result, and whether that is an error.
func (m *Client) Call(tool string, args map[string]any) (texts []string, isError bool) {
	m.t.Helper()
	result, err := m.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return []string{err.Error()}, true
	}
	for _, c := range result.Content {
		texts = append(texts, c.(*mcp.TextContent).Text)
	}
	return texts, result.IsError
}

// Text is Call of a tool that must succeed, with the texts in one.
func (m *Client) Text(tool string, args map[string]any) string {
	m.t.Helper()
	texts, isError := m.Call(tool, args)
	all := strings.Join(texts, "\n")
	if isError {
		m.t.Errorf("%s %v: %s", tool, args, all)
	}
	return all
}

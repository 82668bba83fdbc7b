package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/egress/secret"
)

// A value that is replaced counts for the next request, also on a connection that is open, and
// programs learn neither it nor the former one.
func TestAnOpenConnectionUsesTheNewValue(t *testing.T) {
	const first, second = "the-first-value-that-no-program-knows", "the-second-value-that-no-program-knows"
	var got string
	reflectBoth := func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		fmt.Fprintf(w, "%s %s", first, second)
	}
	i := startInterception(t, reflectBoth, []wireSecret{{Name: "TOKEN", Hosts: []secret.Target{{Host: "example.com", Port: 443}}, Placeholder: secretPlaceholder}}, "example.com,intercept")
	for _, http2 := range []bool{false, true} {
		c := i.client("example.com", http2)
		dials := 0
		transport := c.Transport.(*http.Transport)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return dial(ctx, network, address)
		}
		for n, value := range []string{first, second} {
			i.handOver(map[string]string{"TOKEN": value}, nil)
			r, err := http.NewRequest(http.MethodGet, "https://example.com/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+secretPlaceholder)
			answer, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if got != "Bearer "+value {
				t.Errorf("HTTP/2 %t, request %d: the host got %q, want %q", http2, n, got, value)
			}
			if n == 1 && strings.Contains(string(body), "value") {
				t.Errorf("HTTP/2 %t: the program got %q", http2, body)
			}
		}
		if dials != 1 {
			t.Errorf("HTTP/2 %t: %d connections, want 1", http2, dials)
		}
	}
}

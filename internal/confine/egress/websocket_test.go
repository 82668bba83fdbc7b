package egress

import (
	"bufio"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/egress/secret"
)

const (
	webSocketKey  = "dGhlIHNhbXBsZSBub25jZQ=="
	webSocketHead = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + webSocketKey + "\r\n"
)

// webSockets agrees to a WebSocket, in which it sends a frame with the credential that it got, and
// echoes bytes. change changes the head of its answer.
func webSockets(change func(head string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" || r.Header.Get("Sec-WebSocket-Extensions") != "" {
			http.Error(w, "no WebSocket here", http.StatusTeapot)
			return
		}
		c, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
			base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
		if change != nil {
			head = change(head)
		}
		credential := r.Header.Get("Authorization")
		fmt.Fprintf(buffer, "%s\x81%c%s", head, rune(len(credential)), credential)
		_ = buffer.Flush() // the program may be gone
		_, _ = io.Copy(c, buffer)
	}
}

// shake asks for a WebSocket, and returns the answer and the connection behind it.
func shake(t *testing.T, c net.Conn, host, path, fields string) (*http.Response, *bufio.Reader) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n", path, host, webSocketHead, fields); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, &http.Request{Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	return answer, r
}

// over returns a connection in which TLS to a host is opened.
func (i *intercepting) over(host string) net.Conn {
	i.t.Helper()
	c := tls.Client(i.dial("example.com"), &tls.Config{RootCAs: i.trusted, ServerName: host})
	if err := c.Handshake(); err != nil {
		i.t.Fatal(err)
	}
	return c
}

func TestAWebSocketPassesWhereTLSIsOpened(t *testing.T) {
	i := startInterception(t, webSockets(nil), nil, "example.com,intercept GET /socket; POST /**")
	c := i.over("example.com")
	answer, r := shake(t, c, "example.com", "/socket", "Authorization: mine\r\nSec-WebSocket-Extensions: permessage-deflate\r\n")
	if answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %s", answer.Status)
	}
	if _, err := io.WriteString(c, "frames of the program"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("\x81\x04mineframes of the program"))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "\x81\x04mineframes of the program" {
		t.Fatalf("got %q, %v", got, err)
	}
	other, _ := shake(t, i.over("example.com"), "example.com", "/other", "")
	if other.StatusCode != http.StatusForbidden {
		t.Errorf("another path: %s", other.Status)
	}
	i.setRules()
	if b, err := io.ReadAll(r); err == nil && len(b) > 0 {
		t.Errorf("a revoked WebSocket goes on: %q", b)
	}
	i.awaitDenied(reasonRevoked)
	closed := i.await(func(r report) bool { return r.Closed != nil }).Closed[0]
	if closed.Requests != 1 || closed.Sent == 0 || closed.Received == 0 {
		t.Errorf("reported %+v", closed)
	}
}

func TestWebSocketsThatAreNotAgreedTo(t *testing.T) {
	replace := func(old, with string) func(string) string {
		return func(head string) string { return strings.Replace(head, old, with, 1) }
	}
	for name, tt := range map[string]struct {
		change func(string) string
		path   string
		status int
		reason string // "": it is no refusal
	}{
		"the host says no": {nil, "/no", http.StatusTeapot, ""},
		"another accept":   {replace("Accept: ", "Accept: x"), "/", http.StatusBadGateway, "Sec-WebSocket-Accept is wrong"},
		"another protocol": {replace("Upgrade: websocket", "Upgrade: h2c"), "/", http.StatusBadGateway, "another protocol"},
		"extensions":       {replace("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"), "/", http.StatusBadGateway, "extensions"},
	} {
		t.Run(name, func(t *testing.T) {
			i := startInterception(t, webSockets(tt.change), nil, "example.com,intercept")
			answer, r := shake(t, i.over("example.com"), "example.com", tt.path, "")
			if answer.StatusCode != tt.status {
				t.Errorf("got %s", answer.Status)
			}
			if _, err := io.ReadAll(answer.Body); err != nil {
				t.Error(err)
			}
			if b, err := io.ReadAll(r); len(b) > 0 || err != nil {
				t.Errorf("then %q, %v", b, err)
			}
			if tt.reason != "" {
				i.awaitDenied(tt.reason)
			}
		})
	}
}

func TestRequestsThatAreNoWebSocketStayRefused(t *testing.T) {
	i := startInterception(t, webSockets(nil), nil, "example.com,intercept")
	for name, request := range map[string]string{
		"another protocol": "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"another method":   "POST / HTTP/1.1\r\nHost: example.com\r\n" + webSocketHead + "\r\n",
		"a body":           "GET / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n" + webSocketHead + "\r\nx",
		"two protocols":    "GET / HTTP/1.1\r\nHost: example.com\r\nUpgrade: h2c\r\n" + webSocketHead + "\r\n",
		"a bad key":        "GET / HTTP/1.1\r\nHost: example.com\r\n" + strings.Replace(webSocketHead, webSocketKey, "x", 1) + "\r\n",
		"another version":  "GET / HTTP/1.1\r\nHost: example.com\r\n" + strings.Replace(webSocketHead, "13", "8", 1) + "\r\n",
		"without Upgrade":  "GET / HTTP/1.1\r\nHost: example.com\r\n" + strings.Replace(webSocketHead, ", Upgrade", "", 1) + "\r\n",
	} {
		c := i.over("example.com")
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %v, %v", name, answer, err)
		}
	}
	i.awaitDenied("change of protocol")
}

// What a host sends is searched, on the program's own connection and at the secret's address.
func TestASecretIsUsedByAWebSocketAndNotTold(t *testing.T) {
	secrets := []wireSecret{{Name: "API_KEY", Hosts: []secret.Target{{Host: "example.com", Port: 443}}, Placeholder: secretPlaceholder}}
	credential := "Authorization: Bearer " + secretPlaceholder + "\r\n"
	want := fmt.Sprintf("\x81%c%s", rune(len("Bearer "+secretValue)), "Bearer "+strings.Repeat("*", len(secretValue)))
	read := func(r io.Reader) string {
		got := make([]byte, len(want))
		_, _ = io.ReadFull(r, got) // the comparison tells
		return string(got)
	}
	i := startInterception(t, webSockets(nil), secrets, "example.com,intercept")
	i.handOver(map[string]string{"API_KEY": secretValue}, nil)
	answer, r := shake(t, i.over("example.com"), "example.com", "/", credential)
	if got := read(r); answer.StatusCode != http.StatusSwitchingProtocols || got != want {
		t.Errorf("got %s, %q", answer.Status, got)
	}
	o, certificate := startWithSecret(t, webSockets(func(head string) string {
		return strings.Replace(head, "Switching Protocols", secretValue, 1)
	}))
	o.handOver(map[string]string{"API_KEY": secretValue}, certificate)
	c := o.dial(insideName)
	answer, r = shake(t, c, insideName, "/", credential)
	if got := read(r); answer.Status != "101 Switching Protocols" || got != want {
		t.Errorf("at the secret's address: %s, %q", answer.Status, got)
	}
	if _, err := io.WriteString(c, "\x81\x01x"); err != nil { // the echo has the form of a frame
		t.Fatal(err)
	}
	if got := make([]byte, 3); true {
		if _, err := io.ReadFull(r, got); err != nil || string(got) != "\x81\x01x" {
			t.Errorf("the echo: %q, %v", got, err)
		}
	}
	c.Close()
	o.await(func(r report) bool { return r.Closed != nil })
}

package sniff

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(text string) (*Request, *bufio.Reader, error) {
	r := bufio.NewReaderSize(strings.NewReader(text), 16)
	q, err := ReadRequest(r)
	return q, r, err
}

func TestRequestsNameTheirHost(t *testing.T) {
	tests := []struct {
		name  string
		text  string
		hosts []string
		body  int64
	}{
		{"a path", "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", []string{"example.com"}, 0},
		{"a port", "GET / HTTP/1.1\r\nhost:\texample.com:80 \r\n\r\n", []string{"example.com:80"}, 0},
		{"a whole URL", "GET http://a.example:80/x?y HTTP/1.1\r\nHost: b.example\r\n\r\n", []string{"a.example:80", "b.example"}, 0},
		{"a URL without a path", "GET HTTP://a.example?y HTTP/1.1\r\nHost: a.example\r\n\r\n", []string{"a.example", "a.example"}, 0},
		{"the server itself", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", []string{"a"}, 0},
		{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", []string{"a"}, 0},
		{"a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n", []string{"a"}, 12},
		{"chunks", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", []string{"a"}, Chunked},
		{"a connection that stays", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive, TE\r\n\r\n", []string{"a"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q, _, err := read(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&Request{Raw: []byte(tt.text), Hosts: tt.hosts, Length: tt.body}, q); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnclearRequestsAreRefused(t *testing.T) {
	const host = "Host: a\r\n"
	tests := []struct{ name, text string }{
		{"CONNECT", "CONNECT a:443 HTTP/1.1\r\n" + host + "\r\n"},
		{"CONNECT in other letters", "connect / HTTP/1.1\r\n" + host + "\r\n"},
		{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"a version that is none", "GET / HTTP/1.2\r\n" + host + "\r\n"},
		{"no version", "GET /\r\n" + host + "\r\n"},
		{"two spaces", "GET  / HTTP/1.1\r\n" + host + "\r\n"},
		{"a space in the target", "GET /a b HTTP/1.1\r\n" + host + "\r\n"},
		{"a tab in the request line", "GET\t/ HTTP/1.1 x HTTP/1.1\r\n" + host + "\r\n"},
		{"an empty line first", "\r\nGET / HTTP/1.1\r\n" + host + "\r\n"},
		{"a user in the URL", "GET http://u@a/ HTTP/1.1\r\n" + host + "\r\n"},
		{"a backslash in the URL", `GET http://a\@b/ HTTP/1.1` + "\r\n" + host + "\r\n"},
		{"a URL of another scheme", "GET https://a/ HTTP/1.1\r\n" + host + "\r\n"},
		{"a URL without a host", "GET http:/// HTTP/1.1\r\n" + host + "\r\n"},
		{"a target that is no path", "GET a HTTP/1.1\r\n" + host + "\r\n"},
		{"no Host", "GET / HTTP/1.1\r\n\r\n"},
		{"an empty Host", "GET / HTTP/1.1\r\nHost: \r\n\r\n"},
		{"two Hosts", "GET / HTTP/1.1\r\n" + host + host + "\r\n"},
		{"a space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
		{"a field that goes on", "GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n"},
		{"a field that goes on by a tab", "GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n"},
		{"a line without a colon", "GET / HTTP/1.1\r\n" + host + "x\r\n\r\n"},
		{"a bare line feed", "GET / HTTP/1.1\nHost: a\n\n"},
		{"a line feed in a field", "GET / HTTP/1.1\r\n" + host + "X: a\nHost: b\r\n\r\n"},
		{"a carriage return in a field", "GET / HTTP/1.1\r\n" + host + "X: a\rHost: b\r\n\r\n"},
		{"a NUL in a field", "GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n"},
		{"two lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"},
		{"a list of lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1, 1\r\n\r\n"},
		{"a length with a sign", "POST / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n"},
		{"a hexadecimal length", "POST / HTTP/1.1\r\n" + host + "Content-Length: 0x1\r\n\r\n"},
		{"a length beyond all", "POST / HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775808\r\n\r\n"},
		{"an empty length", "POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n"},
		{"a length and chunks", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"chunks twice", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"another encoding", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n"},
		{"an encoding like chunks", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n"},
		{"an empty encoding", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding:\r\n\r\n"},
		{"chunks in HTTP/1.0", "POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n"},
		{"a length by another name", "POST / HTTP/1.1\r\n" + host + "Content_Length: 1\r\n\r\n"},
		{"an encoding by another name", "POST / HTTP/1.1\r\n" + host + "transfer_encoding: chunked\r\n\r\n"},
		{"an upgrade to HTTP/2", "GET / HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"},
		{"an upgrade", "GET / HTTP/1.1\r\n" + host + "Upgrade: websocket\r\n\r\n"},
		{"a Connection that names the Host", "GET / HTTP/1.1\r\n" + host + "Connection: close, Host\r\n\r\n"},
		{"a head that is too long", "GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("a", MaxHead) + "\r\n\r\n"},
		{"many fields", "GET / HTTP/1.1\r\n" + host + strings.Repeat("X: a\r\n", MaxHead/6) + "\r\n"},
		{"a head that ends early", "GET / HTTP/1.1\r\n" + host},
		{"a line that ends early", "GET / HTT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q, _, err := read(tt.text)
			if err == nil || errors.Is(err, io.EOF) {
				t.Errorf("got %+v, %v; want a refusal", q, err)
			}
		})
	}
	if _, _, err := read(""); !errors.Is(err, io.EOF) {
		t.Errorf("no request: got %v, want EOF", err)
	}
}

func TestBodiesAreSentOnToTheirEnd(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\n"
	tests := []struct {
		name, head, body string
		good             bool
	}{
		{"a length", "Content-Length: 5\r\n\r\n", "12345", true},
		{"no body", "\r\n", "", true},
		{"chunks", "Transfer-Encoding: chunked\r\n\r\n", "5\r\n12345\r\n00a\r\n1234567890\r\n0\r\n\r\n", true},
		{"a body that ends early", "Content-Length: 5\r\n\r\n", "1234", false},
		{"chunks that end early", "Transfer-Encoding: chunked\r\n\r\n", "5\r\n12345\r\n", false},
		{"a chunk that ends early", "Transfer-Encoding: chunked\r\n\r\n", "5\r\n1234", false},
		{"a chunk with an extension", "Transfer-Encoding: chunked\r\n\r\n", "5;a=b\r\n12345\r\n0\r\n\r\n", false},
		{"a chunk with a sign", "Transfer-Encoding: chunked\r\n\r\n", "+5\r\n12345\r\n0\r\n\r\n", false},
		{"a chunk with a prefix", "Transfer-Encoding: chunked\r\n\r\n", "0x5\r\n12345\r\n0\r\n\r\n", false},
		{"a chunk with a space", "Transfer-Encoding: chunked\r\n\r\n", "5 \r\n12345\r\n0\r\n\r\n", false},
		{"a chunk of many digits", "Transfer-Encoding: chunked\r\n\r\n", "00000000000000005\r\n12345\r\n0\r\n\r\n", false},
		{"a chunk that is longer than it says", "Transfer-Encoding: chunked\r\n\r\n", "4\r\n12345\r\n0\r\n\r\n", false},
		{"a bare line feed", "Transfer-Encoding: chunked\r\n\r\n", "5\n12345\r\n0\r\n\r\n", false},
		{"a trailer", "Transfer-Encoding: chunked\r\n\r\n", "0\r\nX: a\r\n\r\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const next = "GET /next"
			text := head + tt.head + tt.body
			if tt.good {
				text += next
			}
			q, r, err := read(text)
			if err != nil {
				t.Fatal(err)
			}
			var sent bytes.Buffer
			n, err := q.CopyBody(&sent, r)
			if tt.good != (err == nil) || n != int64(sent.Len()) {
				t.Fatalf("sent %d, %v", n, err)
			}
			if !tt.good {
				return
			}
			if rest, _ := io.ReadAll(r); sent.String() != tt.body || string(rest) != next {
				t.Errorf("sent %q, left %q", sent.String(), rest)
			}
		})
	}
}

// What passes is one request, with the same host, to Go's own server, too.
func FuzzRequest(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	f.Add("POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: b\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		q, r, err := read(text)
		if err != nil {
			return
		}
		var sent bytes.Buffer
		sent.Write(q.Raw)
		if _, err := q.CopyBody(&sent, r); err != nil {
			return
		}
		if !strings.HasPrefix(text, sent.String()) {
			t.Fatal("what was sent is not what came")
		}
		reader := bufio.NewReader(bytes.NewReader(sent.Bytes()))
		got, err := http.ReadRequest(reader)
		if err != nil {
			return // it is stricter about something
		}
		if _, err := io.Copy(io.Discard, got.Body); err != nil {
			t.Errorf("the body is not whole: %v", err)
		}
		if left, _ := io.ReadAll(reader); len(left) > 0 {
			t.Errorf("%q was sent behind the request", left)
		}
		if got.Host != q.Hosts[0] {
			t.Errorf("a server sees host %q, we %q", got.Host, q.Hosts)
		}
	})
}

package webproxy

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 has it, and nothing rests on it
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// isWebSocket reports whether a request asks to go on as a WebSocket (RFC 6455, 4.1), and for
// nothing else.
func isWebSocket(r *http.Request) bool {
	one := func(name string) string {
		if values := r.Header[name]; len(values) == 1 {
			return values[0]
		}
		return ""
	}
	key, err := base64.StdEncoding.DecodeString(one("Sec-Websocket-Key"))
	const keySize = 16
	return r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ContentLength == 0 && len(r.TransferEncoding) == 0 &&
		strings.EqualFold(one("Upgrade"), "websocket") && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") &&
		one("Sec-Websocket-Version") == "13" && err == nil && len(key) == keySize
}

// acceptOf is the answer to a key (RFC 6455, 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // the protocol's
	return base64.StdEncoding.EncodeToString(sum[:])
}

// agree checks an answer by which the host goes on as a WebSocket, and prepares what follows it.
// Errors: an AnswerError.
func (p *Proxy) agree(r *http.Response) error {
	h := r.Header
	stream, both := r.Body.(io.ReadWriteCloser)
	switch {
	case !both, !strings.EqualFold(h.Get("Upgrade"), "websocket"), !httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade"):
		return AnswerError{"the host changes to another protocol than was asked for"}
	case len(h["Sec-Websocket-Accept"]) != 1, h.Get("Sec-Websocket-Accept") != acceptOf(r.Request.Header.Get("Sec-Websocket-Key")):
		return AnswerError{"the host did not read the request for a WebSocket: Sec-WebSocket-Accept is wrong"}
	case len(h["Sec-Websocket-Extensions"]) > 0:
		return AnswerError{"the host uses extensions of WebSocket that were not asked for"}
	}
	if p.Filter != nil {
		stream = p.Filter.Stream(r, stream)
	}
	r.Body = whole{stream}
	return nil
}

// whole is a WebSocket's connection, which has ended when one direction has.
type whole struct{ stream io.ReadWriteCloser }

func (w whole) Read(p []byte) (int, error) {
	n, err := w.stream.Read(p)
	if errors.Is(err, io.EOF) {
		err = net.ErrClosed
	}
	return n, err
}

func (w whole) Write(p []byte) (int, error) { return w.stream.Write(p) }
func (w whole) Close() error                { return w.stream.Close() }

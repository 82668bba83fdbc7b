package gateway

import (
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc/metadata"
)

// body is a request's body with limits of size and time.
type body struct {
	io.ReadCloser
	most     int64 // bytes; 0: any number
	tooLarge bool
	ended    error // error of the last Read
	silence  time.Duration
	conn     *http.ResponseController
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// admit authenticates the caller of a request with a body, before the body takes memory. For a
// request without a body, the call itself refuses an unknown caller.
func (g *gateway) admit(w http.ResponseWriter, r *http.Request) error {
	if g.o.Admit == nil {
		return nil
	}
	ctx, err := g.call(r, "")
	if err == nil {
		shown, _ := metadata.FromOutgoingContext(ctx)
		err = g.o.Admit(metadata.NewIncomingContext(ctx, shown))
	}
	switch {
	case err == nil:
	case hasBody(r):
		w.Header().Set("Connection", "close") // otherwise the server would wait for the rest of the body
	case isUnknownCaller(err):
		return nil
	}
	return err
}

// boundBody limits r's body to most bytes; 0: no limit.
func (g *gateway) boundBody(w http.ResponseWriter, r *http.Request, most int64) {
	if !hasBody(r) {
		return
	}
	inner := r.Body
	if most > 0 {
		inner = http.MaxBytesReader(w, inner, most)
	}
	r.Body = &body{ReadCloser: inner, most: most, silence: g.o.BodyTimeout, conn: http.NewResponseController(w)}
}

// Read reads from the client, with a deadline. After the end of the body it sets no deadline: the
// server keeps reading to notice that the client disconnects, and a deadline would look the same.
func (b *body) Read(p []byte) (int, error) {
	if b.ended != nil {
		return 0, b.ended
	}
	if err := b.conn.SetReadDeadline(time.Now().Add(b.silence)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	b.ended = err
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		b.tooLarge = true
	}
	if err := b.conn.SetReadDeadline(time.Time{}); err != nil {
		return n, err
	}
	return n, err
}

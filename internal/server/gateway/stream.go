package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// events writes server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
type events struct {
	w       http.ResponseWriter
	conn    *http.ResponseController
	started bool // the status was sent
}

// start sends the status.
func (e *events) start() error {
	if e.started {
		return nil
	}
	e.started = true
	e.w.Header().Set("Content-Type", "text/event-stream")
	e.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
	e.w.WriteHeader(http.StatusOK)
	return e.conn.Flush()
}

// send sends an event. Its data is one line.
func (e *events) send(name string, data []byte) error {
	return e.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data))
}

// sendNumbered sends an event with an id, after which a client can resume.
func (e *events) sendNumbered(name string, id uint64, data []byte) error {
	return e.write(fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", id, name, data))
}

// beat sends a comment, so that proxies keep the connection and the gateway notices that the client
// has disconnected.
func (e *events) beat() error {
	return e.write([]byte(": still here\n\n"))
}

func (e *events) write(text []byte) error {
	if err := e.start(); err != nil {
		return err
	}
	if _, err := e.w.Write(text); err != nil {
		return err
	}
	return e.conn.Flush()
}

// fail sends err: as the status, or as an event if the status was already sent.
func (e *events) fail(r *http.Request, err error) {
	if !e.started {
		writeError(e.w, r, err)
		return
	}
	_ = e.send("error", statusJSON(status.Convert(err))) // the last event: its error does not matter
}

// eventData is v in JSON, on one line.
func eventData(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// source is a stream of the service, converted to events.
type source[T any] struct {
	open func(context.Context) (grpc.ServerStreamingClient[T], error)
	emit func(*events, *T) error
	end  func(*events) error // after the last message
}

// received is an item of receive. One with neither a message nor an error means that the service
// has started the stream.
type received[T any] struct {
	message *T
	err     error
}

// receive sends the items of the stream until the stream or ctx ends.
func receive[T any](ctx context.Context, stream grpc.ServerStreamingClient[T], to chan<- received[T]) {
	defer close(to)
	pass := func(item received[T]) bool {
		select {
		case to <- item:
			return true
		case <-ctx.Done():
			return false
		}
	}
	// No header and no error: the stream has already ended, and Recv returns its error.
	if header, err := stream.Header(); err == nil && header != nil && !pass(received[T]{}) {
		return
	}
	for {
		message, err := stream.Recv()
		if !pass(received[T]{message, err}) || err != nil {
			return
		}
	}
}

// stream answers r with the events of s. It cancels the call when the client disconnects.
func stream[T any](ctx context.Context, g *gateway, w http.ResponseWriter, r *http.Request, s source[T]) {
	out := &events{w: w, conn: http.NewResponseController(w)}
	ctx, cancel := context.WithCancel(ctx)
	messages, err := s.open(ctx)
	if err != nil {
		cancel()
		out.fail(r, err)
		return
	}
	items := make(chan received[T])
	go receive(ctx, messages, items)
	defer func() {
		cancel()
		for range items { //revive:disable-line:empty-block // until receive has ended
		}
	}()
	pulse := time.NewTicker(g.o.Heartbeat)
	defer pulse.Stop()
	for {
		var err error
		select {
		case item := <-items:
			switch {
			case errors.Is(item.err, io.EOF):
				if err := s.end(out); err != nil {
					out.fail(r, err)
				}
				return
			case item.err != nil:
				out.fail(r, item.err)
				return
			case item.message == nil:
				err = out.start()
			default:
				err = s.emit(out, item.message)
			}
			pulse.Reset(g.o.Heartbeat)
		case <-pulse.C:
			err = out.beat()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return // the client has disconnected
		}
	}
}

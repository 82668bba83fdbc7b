package secretproxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/confine/egress/webproxy"
)

// Stream searches what the host sends over a WebSocket for values, and counts both directions. What
// the program sends is masked by XOR and passed on as it is: a placeholder in it stays one.
func (p *Proxy) Stream(r *http.Response, s io.ReadWriteCloser) io.ReadWriteCloser {
	for name := range r.Header {
		switch name {
		case "Upgrade", "Connection", "Sec-Websocket-Accept", "Sec-Websocket-Protocol":
		default:
			delete(r.Header, name)
		}
	}
	maskHeader(p.Masker, r.Header)
	r.Status, r.Trailer = "", nil // of a change of protocol, net/http passes on the host's words
	ctx := r.Request.Context()
	return &stream{
		ReadWriteCloser: s, proxy: p, ctx: ctx,
		frames: frames{from: bufio.NewReader(p.meterAnswer(r, s)), masker: p.Masker},
	}
}

// stream is a WebSocket.
type stream struct {
	io.ReadWriteCloser

	proxy  *Proxy
	ctx    context.Context
	frames frames
}

// Read reads what the host sends. Errors: one for what cannot be searched, which was reported.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.frames.read(p)
	if errors.As(err, &webproxy.AnswerError{}) {
		s.proxy.Refused(err.Error())
	}
	return n, err
}

// Write sends what the program sends.
func (s *stream) Write(p []byte) (int, error) {
	if s.proxy.Quota != nil {
		if _, reason := s.proxy.Quota.Sent(s.ctx, len(p)); reason != "" {
			s.proxy.Refused(reason)
			return 0, webproxy.LimitError{Reason: reason}
		}
	}
	return s.ReadWriteCloser.Write(p)
}

// Of a frame's first bytes (RFC 6455, 5.2).
const (
	finalBit     = 0x80
	reservedBits = 0x70
	opcodeBits   = 0x0f
	controlBit   = 0x08
	maskBit      = 0x80
	lengthBits   = 0x7f
	maxControl   = 125
	length16     = 126
	length64     = 127
)

// frames reads the frames of a host, and makes others with the same messages, in which values are
// masked: also where two frames share one. A message may have other fragments than it came in.
type frames struct {
	from    *bufio.Reader
	masker  *secret.Masker
	pending []byte // frames that are not read yet
	err     error  // after pending

	inMessage bool
	opcode    byte   // of the next frame of the message
	final     bool   // the frame that is read is the message's last
	left      uint64 // bytes of that frame
	held      []byte // of the message, not decided yet
}

// maxPiece bounds the bytes that are read at once.
const maxPiece = 16 << 10

func (f *frames) read(p []byte) (int, error) {
	for len(f.pending) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.err = f.next()
	}
	n := copy(p, f.pending)
	f.pending = f.pending[n:]
	return n, nil
}

// next reads a piece.
func (f *frames) next() error {
	if f.left == 0 {
		if control, err := f.readHead(); err != nil || control {
			return err
		}
	}
	size := len(f.held)
	f.held = append(f.held, make([]byte, min(f.left, maxPiece))...)
	n, err := f.from.Read(f.held[size:])
	f.held = f.held[:size+n]
	f.left -= uint64(n)
	if err != nil && f.left > 0 {
		return err
	}
	last := f.left == 0 && f.final
	if sure := f.masker.Sure(f.held, last); sure > 0 || last {
		f.put(f.opcode, last, f.held[:sure])
		f.held, f.opcode = append([]byte(nil), f.held[sure:]...), 0
	}
	f.inMessage = !last
	return nil
}

// readHead reads the head of a frame, and the whole frame if it is a control frame, which may be
// between those of a message.
func (f *frames) readHead() (control bool, err error) {
	var head [2]byte
	if _, err := io.ReadFull(f.from, head[:]); err != nil {
		return false, err
	}
	length, err := f.readLength(head[1] & lengthBits)
	if err != nil {
		return false, err
	}
	opcode, final := head[0]&opcodeBits, head[0]&finalBit != 0
	control = opcode&controlBit != 0
	switch {
	case head[0]&reservedBits != 0:
		return false, webproxy.AnswerError{Reason: "the host sends WebSocket frames of an extension, which cannot be searched for the value"}
	case head[1]&maskBit != 0, control && (!final || length > maxControl), !control && (opcode == 0) != f.inMessage:
		return false, webproxy.AnswerError{Reason: "the host sends malformed WebSocket frames"}
	case control:
		payload := make([]byte, length)
		if _, err := io.ReadFull(f.from, payload); err != nil {
			return false, err
		}
		f.masker.Mask(payload)
		f.put(opcode, true, payload)
		return true, nil
	}
	if opcode != 0 {
		f.opcode = opcode
	}
	f.inMessage, f.final, f.left = true, final, length
	return false, nil
}

// readLength reads the length of a frame, of which the head has 7 bits.
func (f *frames) readLength(short byte) (uint64, error) {
	size := 0
	switch short {
	case length16:
		size = 2
	case length64:
		size = 8
	default:
		return uint64(short), nil
	}
	var b [8]byte
	_, err := io.ReadFull(f.from, b[8-size:])
	return binary.BigEndian.Uint64(b[:]), err
}

// put makes a frame.
func (f *frames) put(opcode byte, final bool, payload []byte) {
	if final {
		opcode |= finalBit
	}
	switch n := len(payload); {
	case n <= maxControl:
		f.pending = append(f.pending, opcode, byte(n))
	case n < 1<<16:
		f.pending = binary.BigEndian.AppendUint16(append(f.pending, opcode, length16), uint16(n))
	default:
		f.pending = binary.BigEndian.AppendUint64(append(f.pending, opcode, length64), uint64(n))
	}
	f.pending = append(f.pending, payload...)
}

// swapProtocols puts the value in the place of the placeholder where a subprotocol ends in it, as
// programs do that cannot set header fields, and takes out other subprotocols that may carry a
// credential.
func (p *Proxy) swapProtocols(h http.Header) (swapped bool) {
	const field, longest = "Sec-Websocket-Protocol", 40
	var kept []string
	for _, list := range h[field] {
		for name := range strings.SplitSeq(list, ",") {
			name = strings.TrimSpace(name)
			before, is := strings.CutSuffix(name, p.Placeholder)
			switch {
			case is && (before == "" || strings.HasSuffix(before, ".")):
				kept, swapped = append(kept, before+p.Value), true
			case len(name) <= longest && !isCredentialName(name) && !strings.Contains(name, p.Placeholder):
				kept = append(kept, name)
			}
		}
	}
	h.Del(field)
	if len(kept) > 0 {
		h.Set(field, strings.Join(kept, ", "))
	}
	return swapped
}

// isCredentialName reports whether a subprotocol looks like one that carries a credential.
func isCredentialName(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"key", "token", "bearer", "auth", "secret", "credential", "password"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

package sniff

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// MaxHead bounds the request line and the header fields of a request, in bytes.
const MaxHead = 32 << 10

// Chunked is the Length of a body in chunks.
const Chunked = -1

// Request is the head of an HTTP/1 request.
type Request struct {
	Raw []byte // as it came
	// Hosts are what the request names as its host, as they stand there: the Host field and, if
	// the target is a whole URL, that one's authority. Both may have a port.
	Hosts  []string
	Length int64 // of the body in bytes, or Chunked
	// WebSocket says that the request asks to go on as a WebSocket (RFC 6455, 4.1).
	WebSocket bool
}

// ReadRequest reads the head of a request. Its error is io.EOF if there is none, and says else
// why a request is refused.
func ReadRequest(r *bufio.Reader) (*Request, error) {
	line, err := readLine(r, MaxHead)
	if err != nil {
		return nil, err
	}
	q := &Request{Raw: append(line, '\r', '\n')}
	minor, isGet, err := q.readRequestLine(string(line))
	if err != nil {
		return nil, err
	}
	fields := map[string][]string{}
	for {
		line, err := readLine(r, MaxHead-len(q.Raw))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		q.Raw = append(append(q.Raw, line...), '\r', '\n')
		if len(line) == 0 {
			break
		}
		name, value, err := parseField(string(line))
		if err != nil {
			return nil, err
		}
		fields[name] = append(fields[name], value)
	}
	q.WebSocket = isGet && minor == '1' && asksForWebSocket(fields)
	return q, q.judge(minor, fields)
}

// readLine reads a line that ends in CR LF, and returns it without. A CR or an LF elsewhere,
// and any other control character but a tab, is refused.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > most {
			return nil, errors.New("request head is too long")
		}
		if err == nil {
			break
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && len(line) > 0 {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
	line, ends := bytes.CutSuffix(line, []byte("\r\n"))
	if !ends {
		return nil, errors.New("a line does not end in CR LF")
	}
	if slices.ContainsFunc(line, func(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return nil, errors.New("control character in the request head")
	}
	return line, nil
}

// readRequestLine reads METHOD TARGET HTTP/1.x and returns x, and whether METHOD is GET.
func (q *Request) readRequestLine(line string) (minor byte, isGet bool, err error) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !isToken(parts[0]) || parts[1] == "" || strings.Contains(line, "\t") {
		return 0, false, errors.New("malformed request line")
	}
	switch method := parts[0]; {
	case parts[2] == "HTTP/2.0":
		return 0, false, errors.New("HTTP/2 without TLS")
	case parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0":
		return 0, false, errors.New("malformed request line")
	case strings.EqualFold(method, "CONNECT"):
		return 0, false, errors.New("method CONNECT")
	}
	return parts[2][len(parts[2])-1], parts[0] == "GET", q.readTarget(parts[1])
}

// readTarget takes the authority of a target that is a whole URL.
func (q *Request) readTarget(target string) error {
	if target[0] == '/' || target == "*" {
		return nil
	}
	const scheme = "http://"
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return errors.New("malformed request target")
	}
	authority := target[len(scheme):]
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	if authority == "" || strings.ContainsAny(authority, "@\\") {
		return errors.New("malformed request target")
	}
	q.Hosts = append(q.Hosts, authority)
	return nil
}

// parseField reads NAME: VALUE. A line that goes on from the one before (obs-fold) has no name.
func parseField(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return "", "", errors.New("malformed header field")
	}
	name = strings.ToLower(name)
	switch strings.ReplaceAll(name, "_", "-") {
	case name:
	case "content-length", "transfer-encoding":
		return "", "", errors.New("a length of the body by a name with an underscore") // CGI and WSGI see no difference
	}
	return name, strings.Trim(value, " \t"), nil
}

// isToken reports whether text is a token (RFC 9110, 5.6.2).
func isToken(text string) bool {
	return text != "" && strings.IndexFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}) < 0
}

// judge finds the host and the length of the body, and refuses what servers and proxies read in
// different ways (RFC 9112, 6 and 11.2).
func (q *Request) judge(minor byte, fields map[string][]string) error {
	if len(fields["host"]) != 1 || fields["host"][0] == "" {
		return errors.New("not exactly one Host field")
	}
	q.Hosts = append(q.Hosts, fields["host"][0])
	if err := q.judgeProtocol(fields); err != nil {
		return err
	}
	lengths, encodings := fields["content-length"], fields["transfer-encoding"]
	switch {
	case len(lengths)+len(encodings) > 1:
		return errors.New("more than one length of the body")
	case len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || strings.Trim(lengths[0], "0123456789") != "" {
			return errors.New("malformed Content-Length")
		}
		q.Length = int64(n)
	case len(encodings) == 1:
		if !strings.EqualFold(encodings[0], "chunked") || minor != '1' {
			return errors.New("unusual Transfer-Encoding")
		}
		q.Length = Chunked
	}
	return nil
}

// judgeProtocol refuses a change of protocol but to a WebSocket, and that a proxy drops fields.
func (q *Request) judgeProtocol(fields map[string][]string) error {
	for _, name := range []string{"upgrade", "http2-settings"} {
		if len(fields[name]) > 0 && !q.WebSocket {
			return fmt.Errorf("change of protocol (%s)", name)
		}
	}
	for _, option := range options(fields) {
		// A proxy drops the fields that are named here, Host among them.
		switch {
		case option == "close", option == "keep-alive", option == "te":
		case option == "upgrade" && q.WebSocket:
		default:
			return errors.New("unusual Connection field")
		}
	}
	return nil
}

// options are those of the Connection fields, in lower case.
func options(fields map[string][]string) []string {
	var all []string
	for _, list := range fields["connection"] {
		for option := range strings.SplitSeq(list, ",") {
			all = append(all, strings.ToLower(strings.Trim(option, " \t")))
		}
	}
	return all
}

// asksForWebSocket reports whether the fields of a request are those of a WebSocket's handshake,
// and of nothing else. It has no body.
func asksForWebSocket(fields map[string][]string) bool {
	is := func(name, value string) bool {
		return len(fields[name]) == 1 && strings.EqualFold(fields[name][0], value)
	}
	return is("upgrade", "websocket") && is("sec-websocket-version", "13") && len(fields["sec-websocket-key"]) == 1 &&
		slices.Contains(options(fields), "upgrade") &&
		len(fields["content-length"])+len(fields["transfer-encoding"])+len(fields["http2-settings"]) == 0
}

// CopyBody sends the body of q on.
func (q *Request) CopyBody(w io.Writer, r *bufio.Reader) (int64, error) {
	if q.Length != Chunked {
		return io.CopyN(w, r, q.Length)
	}
	var sent int64
	for {
		line, err := readLine(r, maxChunkLine)
		if err != nil {
			return sent, unexpected(err)
		}
		size, err := strconv.ParseUint(string(line), 16, 62)
		if err != nil {
			return sent, errors.New("malformed chunk")
		}
		n, err := io.WriteString(w, string(line)+"\r\n")
		sent += int64(n)
		if err != nil {
			return sent, err
		}
		copied, err := io.CopyN(w, r, int64(size))
		sent += copied
		if err != nil {
			return sent, unexpected(err)
		}
		if end, err := readLine(r, len("\r\n")); err != nil || len(end) > 0 {
			return sent, errors.New("malformed chunk, or a trailer")
		}
		n, err = io.WriteString(w, "\r\n")
		sent += int64(n)
		if err != nil || size == 0 {
			return sent, err
		}
	}
}

// maxChunkLine bounds the line that begins a chunk: its size, without extensions.
const maxChunkLine = 16 + 2

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

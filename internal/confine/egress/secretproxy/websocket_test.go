package secretproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/confine/egress/webproxy"
)

// frame is a frame as a host sends it.
func frame(first byte, payload string) string {
	switch n := len(payload); {
	case n <= maxControl:
		return string([]byte{first, byte(n)}) + payload
	case n < 1<<16:
		return string(binary.BigEndian.AppendUint16([]byte{first, length16}, uint16(n))) + payload
	default:
		return string(binary.BigEndian.AppendUint64([]byte{first, length64}, uint64(n))) + payload
	}
}

const (
	text  = 1
	ping  = 9
	final = finalBit
)

// messages reads frames as a program does: data messages joined, control frames with their opcode.
func messages(t *testing.T, b []byte) (data, control []string) {
	t.Helper()
	f := &frames{from: bufio.NewReader(bytes.NewReader(b)), masker: secret.NewMasker()}
	var message []byte
	for {
		f.pending = nil
		isControl, err := f.readHead()
		if errors.Is(err, io.EOF) {
			return data, control
		}
		if err != nil {
			t.Fatal(err)
		}
		if isControl {
			control = append(control, string(f.pending[2:]))
			continue
		}
		payload := make([]byte, f.left)
		if _, err := io.ReadFull(f.from, payload); err != nil {
			t.Fatal(err)
		}
		message = append(message, payload...)
		if f.final {
			data, message = append(data, string(message)), nil
		}
		f.inMessage = !f.final
	}
}

func TestFramesOfAHostAreSearched(t *testing.T) {
	masked := strings.Repeat("*", len(value))
	long := strings.Repeat("x", 100_000)
	for name, tt := range map[string]struct {
		sent          string
		data, control []string
	}{
		"a message":                      {frame(text|final, "a "+value+" b"), []string{"a " + masked + " b"}, nil},
		"an empty message":               {frame(text|final, ""), []string{""}, nil},
		"several":                        {frame(text|final, "a") + frame(2|final, value), []string{"a", masked}, nil},
		"two fragments":                  {frame(text, "a"+value[:9]) + frame(final, value[9:]+"b"), []string{"a" + masked + "b"}, nil},
		"a fragment for each byte":       {frame(text, "") + strings.Join(each(value, func(c string) string { return frame(0, c) }), "") + frame(final, ""), []string{masked}, nil},
		"a control frame between":        {frame(text, value[:9]) + frame(ping|final, "p "+value) + frame(final, value[9:]), []string{masked}, []string{"p " + masked}},
		"the beginning of a value":       {frame(text|final, value[:9]), []string{value[:9]}, nil},
		"a value in two messages":        {frame(text|final, value[:9]) + frame(text|final, value[9:]), []string{value[:9], value[9:]}, nil},
		"a long message":                 {frame(text|final, long+value+long), []string{long + masked + long}, nil},
		"a message of more than 16 bits": {frame(text|final, value+long), []string{masked + long}, nil},
		"a frame of more than 125 bytes": {frame(text|final, value+long[:200]), []string{masked + long[:200]}, nil},
	} {
		for way, from := range map[string]io.Reader{"at once": strings.NewReader(tt.sent), "by bytes": iotest.OneByteReader(strings.NewReader(tt.sent))} {
			t.Run(name+" "+way, func(t *testing.T) {
				f := frames{from: bufio.NewReader(from), masker: secret.NewMasker(value)}
				got, err := io.ReadAll(readerFunc(f.read))
				if err != nil {
					t.Fatal(err)
				}
				data, control := messages(t, got)
				if strings.Join(data, "|") != strings.Join(tt.data, "|") || strings.Join(control, "|") != strings.Join(tt.control, "|") {
					t.Errorf("got %.200q and %q, want %.200q and %q", data, control, tt.data, tt.control)
				}
			})
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func each(s string, do func(string) string) []string {
	var all []string
	for _, c := range s {
		all = append(all, do(string(c)))
	}
	return all
}

func TestFramesThatCannotBeSearchedEndTheConnection(t *testing.T) {
	for name, sent := range map[string]string{
		"compressed":                     frame(text|final|0x40, "x"),
		"masked":                         string([]byte{text | final, maskBit | 1, 0, 0, 0, 0, 'x'}),
		"a long control frame":           frame(ping|final, strings.Repeat("x", 126)),
		"a control frame in fragments":   frame(ping, "x"),
		"a continuation without a begin": frame(final, "x"),
		"a message within another":       frame(text, "x") + frame(text|final, "y"),
	} {
		f := frames{from: bufio.NewReader(strings.NewReader(sent)), masker: secret.NewMasker(value)}
		if got, err := io.ReadAll(readerFunc(f.read)); !errors.As(err, &webproxy.AnswerError{}) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	f := frames{from: bufio.NewReader(strings.NewReader(frame(text, value[:9])[:5])), masker: secret.NewMasker(value)}
	if got, err := io.ReadAll(readerFunc(f.read)); err == nil && len(got) > 0 {
		t.Errorf("a message that does not end: %q", got)
	}
}

func TestSubprotocolsBringNoCredentials(t *testing.T) {
	p := Proxy{Placeholder: placeholder, Value: value}
	for sent, want := range map[string]string{
		"":     "",
		"chat": "chat",
		"realtime, openai-insecure-api-key." + placeholder: "realtime, openai-insecure-api-key." + value,
		placeholder: value,
		"realtime, openai-insecure-api-key.sk-mine":                    "realtime",
		"base64url.bearer.authorization.k8s.io.abc, v4.channel.k8s.io": "v4.channel.k8s.io",
		"x" + placeholder:               "",
		"v1." + strings.Repeat("a", 64): "",
	} {
		h := http.Header{}
		if sent != "" {
			h.Set("Sec-Websocket-Protocol", sent)
		}
		if swapped := p.swapProtocols(h); h.Get("Sec-Websocket-Protocol") != want || swapped != strings.Contains(want, value) {
			t.Errorf("%q: got %q, %t; want %q", sent, h.Get("Sec-Websocket-Protocol"), swapped, want)
		}
	}
}

// FuzzFrames checks that no value passes, whatever a host sends.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(frame(text|final, value)))
	f.Add([]byte(frame(text, value[:9]) + frame(ping|final, "p") + frame(final, value[9:])))
	f.Fuzz(func(t *testing.T, sent []byte) {
		fs := frames{from: bufio.NewReader(bytes.NewReader(sent)), masker: secret.NewMasker(value)}
		got, _ := io.ReadAll(readerFunc(fs.read)) // what is malformed ends it
		if bytes.Contains(got, []byte(value)) {
			t.Errorf("%q passes the value", sent)
		}
	})
}

package sniff

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// helloOf returns the first flight of a real client.
func helloOf(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		_ = tls.Client(client, config).Handshake() // it gets no answer
	}()
	header := make([]byte, recordHeader)
	if _, err := io.ReadFull(server, header); err != nil {
		t.Fatal(err)
	}
	raw := append(header, make([]byte, int(header[3])<<8|int(header[4]))...)
	if _, err := io.ReadFull(server, raw[recordHeader:]); err != nil {
		t.Fatal(err)
	}
	server.Close()
	return raw
}

// inRecords splits the handshake message of one record into records of n bytes.
func inRecords(raw []byte, n int) []byte {
	var out []byte
	for part := range slices.Chunk(raw[recordHeader:], n) {
		out = append(out, raw[0], raw[1], raw[2], byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

// extension is one of a ClientHello.
type extension struct {
	kind  uint16
	value []byte
}

func serverName(names ...string) extension {
	var list []byte
	for _, n := range names {
		list = append(binary.BigEndian.AppendUint16(append(list, nameTypeHost), uint16(len(n))), n...)
	}
	return extension{extensionServerName, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)}
}

// makeHello builds a ClientHello in one record.
func makeHello(extensions ...extension) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	var list []byte
	for _, e := range extensions {
		list = binary.BigEndian.AppendUint16(list, e.kind)
		list = append(binary.BigEndian.AppendUint16(list, uint16(len(e.value))), e.value...)
	}
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(list))), list...)
	return record(recordHandshake, message(messageClientHello, body))
}

func message(kind byte, body []byte) []byte {
	return append([]byte{kind, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

func record(kind byte, payload []byte) []byte {
	return append([]byte{kind, 3, 1, byte(len(payload) >> 8), byte(len(payload))}, payload...)
}

func TestServerNameIsThatOfTheHello(t *testing.T) {
	plain := helloOf(t, &tls.Config{ServerName: "example.com"})
	for name, tt := range map[string]struct {
		raw  []byte
		want string
	}{
		"a real hello":                   {plain, "example.com"},
		"one of TLS 1.2":                 {helloOf(t, &tls.Config{ServerName: "example.com", MaxVersion: tls.VersionTLS12}), "example.com"},
		"one in records of a byte":       {inRecords(plain, 1), "example.com"},
		"one in records of 100 bytes":    {inRecords(plain, 100), "example.com"},
		"one without a name":             {helloOf(t, &tls.Config{InsecureSkipVerify: true}), ""},
		"a name with odd bytes, as sent": {makeHello(serverName("a\x00b")), "a\x00b"},
	} {
		t.Run(name, func(t *testing.T) {
			r := bytes.NewReader(append(slices.Clone(tt.raw), "what follows"...))
			got, raw, err := ReadClientHello(r)
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
			if !bytes.Equal(raw, tt.raw) || r.Len() != len("what follows") {
				t.Errorf("%d bytes were read, want the hello's %d", len(raw), len(tt.raw))
			}
		})
	}
}

func TestUnclearHellosAreRefused(t *testing.T) {
	good := makeHello(serverName("example.com"))
	cut := func(b []byte, n int) []byte { return b[:len(b)-n] }
	for name, raw := range map[string][]byte{
		"nothing":                         nil,
		"HTTP":                            []byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"),
		"SSH":                             []byte("SSH-2.0-OpenSSH_9.2\r\n"),
		"a hello of SSL 2":                {0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10},
		"a record of another version":     append([]byte{22, 2}, good[2:]...),
		"application data":                record(recordApplicationData, []byte("x")),
		"an empty record":                 record(recordHandshake, nil),
		"a ServerHello":                   record(recordHandshake, message(messageServerHello, make([]byte, 40))),
		"a hello that ends early":         cut(good, 1),
		"a message behind the hello":      record(recordHandshake, append(slices.Clone(good[recordHeader:]), 1)),
		"another record amid the hello":   append(record(recordHandshake, good[recordHeader:recordHeader+10]), record(recordAlert, []byte{1, 0})...),
		"a hello that claims to be long":  record(recordHandshake, []byte{1, 0xff, 0xff, 0xff}),
		"bytes behind the extensions":     record(recordHandshake, message(1, append(slices.Clone(good[recordHeader+messageHeader:]), 0))),
		"a session id of 33 bytes":        record(recordHandshake, message(1, append(append([]byte{3, 3}, make([]byte, 32)...), append([]byte{33}, make([]byte, 60)...)...))),
		"two names in one extension":      makeHello(serverName("example.com", "evil.net")),
		"two extensions with names":       makeHello(serverName("example.com"), serverName("evil.net")),
		"an empty name":                   makeHello(serverName("")),
		"a name of another type":          makeHello(extension{0, []byte{0, 4, 1, 0, 1, 'a'}}),
		"a list that is longer":           makeHello(extension{0, []byte{0, 5, 0, 0, 1, 'a'}}),
		"encrypted_client_hello":          makeHello(serverName("example.com"), extension{extensionECH, []byte{0}}),
		"encrypted_client_hello, inner":   makeHello(serverName("example.com"), extension{extensionECH, []byte{1}}),
		"an encrypted name of old drafts": makeHello(serverName("example.com"), extension{extensionESNI, nil}),
		"extensions of another hello":     makeHello(serverName("example.com"), extension{extensionECHOuter, []byte{2, 0, 0}}),
	} {
		t.Run(name, func(t *testing.T) {
			if got, _, err := ReadClientHello(bytes.NewReader(raw)); err == nil {
				t.Errorf("got %q, want an error", got)
			}
		})
	}
}

func TestRetryIsRecognised(t *testing.T) {
	hello := func(random []byte) []byte {
		return record(recordHandshake, message(messageServerHello, append(append([]byte{3, 3}, random...), make([]byte, 40)...)))
	}
	for name, tt := range map[string]struct {
		raw  []byte
		want bool
	}{
		"a ServerHello":                 {hello(make([]byte, 32)), false},
		"a HelloRetryRequest":           {hello(retryRandom[:]), true},
		"one in records of a byte":      {inRecords(hello(retryRandom[:]), 1)[:6*(messageHeader+helloFixed)], true},
		"an alert":                      {record(recordAlert, []byte{2, 40}), false},
		"a retry behind a warning":      {append(record(recordAlert, []byte{1, 112}), hello(retryRandom[:])...), true},
		"an answer behind a warning":    {append(record(recordAlert, []byte{1, 112}), hello(make([]byte, 32))...), false},
		"two messages, as in TLS 1.2":   {append(hello(make([]byte, 32)), record(recordHandshake, []byte{11, 0, 0, 0})...)[:recordHeader+messageHeader+helloFixed+40], false},
		"a long handshake in TLS 1.2's": {record(recordHandshake, append(message(messageServerHello, make([]byte, 40)), make([]byte, 4000)...)), false},
	} {
		t.Run(name, func(t *testing.T) {
			retry, raw, err := ReadServerHello(bytes.NewReader(tt.raw))
			if err != nil || retry != tt.want || !bytes.Equal(raw, tt.raw) {
				t.Errorf("got %t, %d of %d bytes, %v; want %t", retry, len(raw), len(tt.raw), err, tt.want)
			}
		})
	}
	for name, raw := range map[string][]byte{
		"another protocol":           []byte("HTTP/1.1 400 Bad Request\r\n"),
		"warnings without end":       bytes.Repeat(record(recordAlert, []byte{1, 112}), 1000),
		"another message":            record(recordHandshake, message(0, nil)),
		"a hello without its random": record(recordHandshake, message(messageServerHello, make([]byte, 33))),
	} {
		if retry, _, err := ReadServerHello(bytes.NewReader(raw)); err == nil {
			t.Errorf("%s: got %t, want an error", name, retry)
		}
	}
}

func TestSecondHelloComesAfterWhatTheServerSkips(t *testing.T) {
	skipped := append(record(recordChangeCipherSpec, []byte{1}), record(recordApplicationData, []byte("early"))...)
	second := makeHello(serverName("example.com"))
	all := append(slices.Clone(skipped), second...)
	name, raw, err := ReadSecondHello(bytes.NewReader(all))
	if err != nil || name != "example.com" || !bytes.Equal(raw, all) {
		t.Errorf("got %q, %d of %d bytes, %v", name, len(raw), len(all), err)
	}
	if _, _, err := ReadSecondHello(bytes.NewReader(append(skipped, record(recordAlert, []byte{2, 0})...))); err == nil {
		t.Error("an alert was taken for a hello")
	}
	endless := strings.NewReader(strings.Repeat(string(record(recordApplicationData, make([]byte, 1<<14))), 20))
	if _, raw, err := ReadSecondHello(endless); !errors.Is(err, errTooLong) || len(raw) > 1<<16 {
		t.Errorf("early data without end: got %d bytes, %v; want %v", len(raw), err, errTooLong)
	}
}

// A program inside may have a thousand hellos under way, outside its limit of memory.
func TestAHelloTakesLittleMemory(t *testing.T) {
	large := makeHello(extension{21, make([]byte, maxPlain-100)}) // padding
	if _, raw, err := ReadClientHello(bytes.NewReader(inRecords(large, 1))); !errors.Is(err, errTooLong) || len(raw) > maxHelloRecords+maxRecord {
		t.Errorf("in records of a byte: got %d bytes, %v; want %v", len(raw), err, errTooLong)
	}
	if _, _, err := ReadClientHello(bytes.NewReader(large)); err != nil {
		t.Errorf("in one record: %v", err)
	}
}

func FuzzClientHello(f *testing.F) {
	f.Add(helloOf(f, &tls.Config{ServerName: "example.com"}))
	f.Add(inRecords(makeHello(serverName("example.com")), 7))
	f.Add(makeHello(extension{extensionECH, []byte{0}}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		name, read, err := ReadClientHello(bytes.NewReader(raw))
		if !bytes.HasPrefix(raw, read) {
			t.Fatal("what came back is not what was read")
		}
		if err != nil {
			return
		}
		// A real server that takes this hello sees the same name.
		server := tls.Server(said{bytes.NewReader(read)}, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			// Go drops the final dot, and takes no addresses for names.
			if got := info.ServerName; got != name && got != "" {
				t.Errorf("the server sees %q, we %q", got, name)
			}
			return nil, errors.New("seen")
		}})
		_ = server.Handshake() // it fails
	})
}

// said is a connection whose other side has said all that it says.
type said struct{ *bytes.Reader }

func (said) Write(b []byte) (int, error)      { return len(b), nil }
func (said) Close() error                     { return nil }
func (said) LocalAddr() net.Addr              { return nil }
func (said) RemoteAddr() net.Addr             { return nil }
func (said) SetDeadline(time.Time) error      { return nil }
func (said) SetReadDeadline(time.Time) error  { return nil }
func (said) SetWriteDeadline(time.Time) error { return nil }

func FuzzServerHello(f *testing.F) {
	f.Add(record(recordHandshake, message(messageServerHello, append([]byte{3, 3}, retryRandom[:]...))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, read, _ := ReadServerHello(bytes.NewReader(raw)); !bytes.HasPrefix(raw, read) {
			t.Error("what came back is not what was read")
		}
	})
}

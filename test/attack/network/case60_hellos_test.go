package network_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	encoding "encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

const greetHosts = "greet"

// secondHello is the port of example.com where a server asks for a second ClientHello.
const secondHello = "8443"

// greet begins TLS connections to example.com that are for another server, or do not tell, and
// checks that each is refused.
func greet([]string) int {
	named := func(name string) *tls.Config { return &tls.Config{ServerName: name, InsecureSkipVerify: true} }
	twice := func(name string) *tls.Config {
		c := named(name)
		c.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP521}
		return c
	}
	hidden, err := hiding("other.example.net", "example.com")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var errs []error
	for _, g := range []struct {
		name, port string
		config     *tls.Config
		through    func(net.Conn) net.Conn
		passes     bool
	}{
		{"a hello", "443", named("example.com"), nil, true},
		{"without a server name", "443", named(""), nil, false},
		{"with another one", "443", named("other.example.net"), nil, false},
		{"with an encrypted one", "443", hidden, nil, false},
		{"in pieces", "443", named("example.com"), inPieces, true},
		{"in pieces, with another name", "443", named("other.example.net"), inPieces, false},
		{"a second hello", secondHello, twice("example.com"), nil, true},
		{"a second hello with another name", secondHello, twice("example.com"), swapName, false},
		{"a second hello in pieces with another name", secondHello, twice("example.com"), func(c net.Conn) net.Conn { return swapName(inPieces(c)) }, false},
	} {
		c, err := net.Dial("tcp", "example.com:"+g.port)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		through := c
		if g.through != nil {
			through = g.through(c)
		}
		err = tls.Client(through, g.config).Handshake()
		c.Close()
		if g.passes != (err == nil) || !g.passes && !strings.Contains(err.Error(), "access denied") {
			errs = append(errs, fmt.Errorf("%s: %w", g.name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// hiding is the configuration of a client that names a server in an encrypted ClientHello, and
// another one where everybody can read it (RFC 9849).
func hiding(name, public string) (*tls.Config, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	const x25519, sha256, aes128 = 0x0020, 1, 1 // HPKE's (RFC 9180, 7)
	b := encoding.BigEndian.AppendUint16([]byte{1}, x25519)
	b = encoding.BigEndian.AppendUint16(b, uint16(len(key.PublicKey().Bytes())))
	b = append(b, key.PublicKey().Bytes()...)
	for _, n := range []uint16{4, sha256, aes128} {
		b = encoding.BigEndian.AppendUint16(b, n)
	}
	b = append(append(b, 0, byte(len(public))), public...)
	b = append(b, 0, 0) // no extensions
	const version = 0xfe0d
	b = append(encoding.BigEndian.AppendUint16(encoding.BigEndian.AppendUint16(nil, version), uint16(len(b))), b...)
	return &tls.Config{
		ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		EncryptedClientHelloConfigList: append(encoding.BigEndian.AppendUint16(nil, uint16(len(b))), b...),
	}, nil
}

// piecemeal sends each TLS record of a handshake in the clear as records of a few bytes, and each
// of them in more than one packet.
type piecemeal struct{ net.Conn }

func inPieces(c net.Conn) net.Conn { return piecemeal{c} }

func (p piecemeal) Write(b []byte) (int, error) {
	const header = 5
	for rest := b; len(rest) >= header; {
		n := header + int(encoding.BigEndian.Uint16(rest[3:]))
		record := rest[:n]
		rest = rest[n:]
		const handshake = 22
		if record[0] != handshake {
			if _, err := p.Conn.Write(record); err != nil {
				return 0, err
			}
			continue
		}
		for part := range slices.Chunk(record[header:], 9) {
			small := append(append(bytes.Clone(record[:3]), 0, byte(len(part))), part...)
			for piece := range slices.Chunk(small, 7) {
				if _, err := p.Conn.Write(piece); err != nil {
					return 0, err
				}
			}
		}
	}
	return len(b), nil
}

// swapping names another server in all but the first hello.
type swapping struct {
	net.Conn

	writes int
}

func swapName(c net.Conn) net.Conn { return &swapping{Conn: c} }

func (s *swapping) Write(b []byte) (int, error) {
	if s.writes++; s.writes > 1 {
		b = bytes.ReplaceAll(b, []byte("example.com"), []byte("example.net"))
	}
	return s.Conn.Write(b)
}

// serveSecondHello serves example.com so that most clients have to say hello twice.
func serveSecondHello(t *testing.T) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Listener.Close()
	server.Listener = world.Listen(t, harness.PublicAddr+":"+secondHello)
	server.TLS = &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP521}}
	server.StartTLS()
	t.Cleanup(server.Close)
}

// greetingsRefused are what the audit log says of them.
var greetingsRefused = []string{
	"example.com port 443: TLS without a server name",
	`example.com port 443: TLS names another server: "other.example.net"`,
	"example.com port 443: encrypted ClientHello: ",
	"example.com port " + secondHello + `: TLS names another server: "example.net"`,
}

// However a ClientHello arrives, and the second one too, it names the server that was allowed.
func TestAHelloIsForTheNameThatIsAllowed(t *testing.T) {
	internet(t)
	serveSecondHello(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		if r := s.RunProgram(greetHosts, nil, "--allow-net", "example.com", "--allow-net", "example.com:"+secondHello); r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, greetingsRefused...)
	})
}

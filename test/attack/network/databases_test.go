package network_test

import (
	"bufio"
	"crypto/tls"
	encoding "encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// serveEach serves each connection to a listener until that is closed.
func serveEach(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// A client of PostgreSQL asks for TLS before its hello, so only a rule with raw lets it through.
func TestPostgres(t *testing.T) {
	testenv.Command(t, "psql")
	harness.NeedWorld(t)
	world.Names(t, names...)
	authority, certificate := harness.Certify(t, "example.com")
	l := world.Listen(t, harness.PublicAddr+":5432")
	go serveEach(l, func(c net.Conn) { servePostgres(c, &tls.Config{Certificates: []tls.Certificate{certificate}}) })
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		const ask = `psql 'host=example.com user=me dbname=db sslmode=verify-full sslrootcert=/opt/authority.pem connect_timeout=100' -XAtc 'select greeting'`
		want(t, s.Run(ask+" 2>/dev/null || echo refused $?", flags(authority, "example.com:5432")...), "refused 2\n")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "example.com port 5432: neither TLS nor, on port 80, HTTP")
		want(t, s.Run(ask, flags(authority, "example.com:5432,raw")...), "hello from a database\n")
	})
}

// servePostgres answers every query with one row (PostgreSQL's "Message Formats").
func servePostgres(c net.Conn, config *tls.Config) {
	const sslRequest, gssRequest = 80877103, 80877104
	var r *bufio.Reader
	w := c
	for r == nil {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		switch code := encoding.BigEndian.Uint32(head[4:]); code {
		case gssRequest:
			_, _ = io.WriteString(c, "N")
		case sslRequest:
			_, _ = io.WriteString(c, "S")
			c = tls.Server(c, config)
			w = c
		default:
			r = bufio.NewReader(c)
			if _, err := r.Discard(int(encoding.BigEndian.Uint32(head[:4])) - len(head)); err != nil {
				return
			}
		}
	}
	answer := func(kind byte, body string) {
		m := encoding.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
		_, _ = w.Write(append(m, body...)) // the client notices
	}
	answer('R', "\x00\x00\x00\x00")
	answer('S', "server_version\x0015.0\x00")
	answer('S', "client_encoding\x00UTF8\x00")
	answer('Z', "I")
	for {
		kind, err := r.ReadByte()
		var size [4]byte
		if _, readErr := io.ReadFull(r, size[:]); err != nil || readErr != nil || kind != 'Q' {
			return
		}
		if _, err := r.Discard(int(encoding.BigEndian.Uint32(size[:])) - len(size)); err != nil {
			return
		}
		const text = "hello from a database"
		answer('T', "\x00\x01greeting\x00"+"\x00\x00\x00\x00\x00\x00"+"\x00\x00\x00\x19\xff\xff\xff\xff\xff\xff\x00\x00")
		answer('D', "\x00\x01\x00\x00\x00"+string(rune(len(text)))+text)
		answer('C', "SELECT 1\x00")
		answer('Z', "I")
	}
}

// Redis over TLS needs no more than a name; without TLS it needs a rule with raw.
func TestRedis(t *testing.T) {
	testenv.Command(t, "redis-cli")
	harness.NeedWorld(t)
	world.Names(t, names...)
	authority, certificate := harness.Certify(t, "example.com")
	go serveEach(world.Listen(t, harness.PublicAddr+":6379"), serveRedis)
	secure := tls.NewListener(world.Listen(t, harness.PublicAddr+":6380"), &tls.Config{Certificates: []tls.Certificate{certificate}})
	go serveEach(secure, serveRedis)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		const plain = "redis-cli -h example.com -p 6379 get greeting"
		const encrypted = "redis-cli -h example.com -p 6380 --tls --sni example.com --cacert /opt/authority.pem get greeting"
		r := s.Run(encrypted+"\n"+plain+" || echo refused", flags(authority, "example.com:6379", "example.com:6380")...)
		lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
		if lines[0] != "hello from redis" || strings.Contains(strings.Join(lines[1:], " "), "hello") || r.Code != 0 {
			t.Errorf("exit %d, stdout %q: want an answer over TLS and none without\n%s", r.Code, r.Stdout, r.Stderr)
		}
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "example.com port 6379: neither TLS nor, on port 80, HTTP")
		want(t, s.Run(plain, flags(authority, "example.com:6379,raw")...), "hello from redis\n")
	})
}

// serveRedis answers GET, and refuses what else a client asks (RESP).
func serveRedis(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		words, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "-ERR unknown command\r\n"
		if len(words) == 2 && strings.EqualFold(words[0], "get") {
			answer = "+hello from redis\r\n"
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// readCommand reads an array of strings.
func readCommand(r *bufio.Reader) (words []string, err error) {
	count := func(kind string) (n int, err error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), kind))
	}
	n, err := count("*")
	for range n {
		size, err := count("$")
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, err
}

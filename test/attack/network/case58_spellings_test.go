package network_test

import (
	"bytes"
	"crypto/tls"
	encoding "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/agentfense/agentfense/test/harness"
)

const spellHosts = "spell"

// spellings are hosts that some parser may take for example.com, and others for another host.
var spellings = []string{
	"example.com\x00.other.example.net", "other.example.net\x00example.com", "example.com%00.other.example.net",
	"other.example.net@example.com", "example.com@other.example.net", "example.com\\@other.example.net",
	"example.com/.other.example.net", "example.com#.other.example.net", "example.com?other.example.net",
	"example.com,other.example.net", "example.com other.example.net", "example.com;other.example.net",
	"example.com..", ".example.com", "example..com", "example.com\r", "example.com%0d%0aX: y", "example%2ecom",
	"ｅxample.com", "example。com", "exam\u200bple.com", "ex\u00adample.com", "examp\u0131e.com", "xn--example-9d0b.com",
	"other.example.net", "www.example.com", "example.com.other.example.net", "notexample.com", "example.co", "com", "localhost",
	"100.64.0.2", "93.184.216.34", "1572395042", "0x5db8d822", "0135.0270.0330.042", "93.184.55330", "127.1", "[::1]",
	"[::ffff:93.184.216.34]", "[::ffff:100.64.0.2]", "[example.com]", "-example.com", "*.example.com",
}

// otherPorts are what may be behind example.com in a request, and is not port 80.
var otherPorts = []string{":443", ":080", ":80:80", ":", ":x", ":-80", ":65616"}

// isQuestion reports whether DNS can ask for a host, and isURL whether it can be the host of a URL.
func isQuestion(host string) bool { return !strings.Contains("."+host, "..") }
func isURL(host string) bool      { return !strings.ContainsAny(host, "/?#") }

// spell names example.com in each of these ways, to the resolver, in TLS and in HTTP, and checks
// that it is refused.
func spell([]string) int {
	var errs []error
	for _, host := range spellings {
		errs = append(errs, sayInTLS(host, false))
		if isQuestion(host) {
			errs = append(errs, askFor(host, false))
		}
		errs = append(errs, sayInHTTP("GET /"+mark+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n", http.StatusForbidden))
		if isURL(host) {
			errs = append(errs, sayInHTTP("GET http://"+host+"/"+mark+" HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n", http.StatusForbidden))
		}
	}
	for _, port := range otherPorts {
		errs = append(errs, sayInHTTP("GET /"+mark+" HTTP/1.1\r\nHost: example.com"+port+"\r\n\r\n", http.StatusForbidden))
	}
	// The same spellings are of one host.
	for _, host := range []string{"example.com", "EXAMPLE.com", "Example.Com."} {
		plain := strings.TrimSuffix(host, ".") // servers refuse a final dot in TLS
		errs = append(errs, askFor(plain, true), sayInTLS(plain, true))
		errs = append(errs, sayInHTTP("GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n", http.StatusOK))
		errs = append(errs, sayInHTTP("GET / HTTP/1.1\r\nHost: "+host+":80\r\nConnection: close\r\n\r\n", http.StatusOK))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// askFor asks the resolver for the address of a name, whose labels are those between dots.
func askFor(name string, known bool) error {
	q := []byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	q = append(q, 0, 0, byte(dnsmessage.TypeA), 0, byte(dnsmessage.ClassINET))
	c, err := net.Dial("tcp", "100.64.0.1:53")
	if err != nil {
		return fmt.Errorf("resolve %q: %w", name, err)
	}
	defer c.Close()
	if _, err := c.Write(append(encoding.BigEndian.AppendUint16(nil, uint16(len(q))), q...)); err != nil {
		return fmt.Errorf("resolve %q: %w", name, err)
	}
	var size [2]byte
	_, err = io.ReadFull(c, size[:])
	if err != nil && !known {
		return nil // the question was dropped
	}
	answer := make([]byte, encoding.BigEndian.Uint16(size[:]))
	if _, readErr := io.ReadFull(c, answer); err != nil || readErr != nil {
		return fmt.Errorf("resolve %q: %w", name, errors.Join(err, readErr))
	}
	if answers := encoding.BigEndian.Uint16(answer[6:8]); answers != 0 != known {
		return fmt.Errorf("resolve %q: got %d answers", name, answers)
	}
	return nil
}

// sayInTLS sends a hello to port 443 of example.com that names a server, and looks whether a
// hello comes back.
func sayInTLS(name string, good bool) error {
	c, err := net.Dial("tcp", "example.com:443")
	if err != nil {
		return fmt.Errorf("TLS to %q: %w", name, err)
	}
	defer c.Close()
	hello, err := helloTo(name)
	if err == nil {
		_, err = c.Write(hello)
	}
	first := make([]byte, 1)
	if _, readErr := io.ReadFull(c, first); err != nil || readErr != nil {
		return fmt.Errorf("TLS to %q: %w", name, errors.Join(err, readErr))
	}
	const alert, handshake = 21, 22
	if first[0] == handshake != good || first[0] != alert && !good {
		return fmt.Errorf("TLS to %q: got a record of type %d", name, first[0])
	}
	return nil
}

// helloTo returns a ClientHello that has name as its server name, whatever name is.
func helloTo(name string) ([]byte, error) {
	stand := strings.Repeat("a", len(name)-len(".b")) + ".b"
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: stand, InsecureSkipVerify: true}).Handshake() // its first record is what counts
		theirs.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(ours, head); err != nil {
		return nil, err
	}
	body := make([]byte, encoding.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(ours, body); err != nil {
		return nil, err
	}
	if !bytes.Contains(body, []byte(stand)) {
		return nil, fmt.Errorf("no server name %q in the hello", stand)
	}
	return append(head, bytes.Replace(body, []byte(stand), []byte(name), 1)...), nil
}

// sayInHTTP sends a request to port 80 of example.com.
func sayInHTTP(text string, code int) error {
	c, err := net.Dial("tcp", "example.com:80")
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, text) // it may be refused by then
	answer, err := io.ReadAll(c)
	if want := fmt.Sprintf("HTTP/1.1 %d ", code); !bytes.HasPrefix(answer, []byte(want)) {
		return fmt.Errorf("%q: got %q, %w; want %s", text, answer, err, want)
	}
	return nil
}

// checkSpellings checks that the audit log has each refusal of spell, by its port: 0 are questions
// to the resolver.
func checkSpellings(t *testing.T, text string) {
	t.Helper()
	expected := map[uint16]int{443: len(spellings), 80: len(spellings) + len(otherPorts)}
	for _, host := range spellings {
		if isQuestion(host) {
			expected[0]++
		}
		if isURL(host) {
			expected[80]++
		}
	}
	got := map[uint16]int{}
	for line := range strings.Lines(text) {
		var r struct {
			Event string
			Port  uint16
			Count int
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.Event == "network_denied" {
			got[r.Port] += r.Count
		}
	}
	if !maps.Equal(got, expected) {
		t.Errorf("the audit log has these refusals by port: %v, want %v:\n%s", got, expected, text)
	}
}

// A host has one form, and what is not in that form, or of another host, is refused everywhere.
func TestHostsHaveOneSpelling(t *testing.T) {
	internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.RunProgram(spellHosts, nil, "--allow-net", "example.com", "--allow-net", "EXAMPLE.com.:80")
		if r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
		checkSpellings(t, s.Agentfense("audit", s.Name, "--json").Stdout)
	})
}

// Most of them are no rule. What a person may write is shown in its one form.
func TestRulesHaveOneSpelling(t *testing.T) {
	s := harness.New(t, binary, nil)
	good := []string{
		"www.example.com", "other.example.net", "example.com.other.example.net", "notexample.com", "example.co", "com", "*.example.com",
		"100.64.0.2", "93.184.216.34", "xn--example-9d0b.com",
	}
	for _, host := range spellings {
		// No argument has a NUL, and letters beyond ASCII are mapped (UTS 46).
		if slices.Contains(good, host) || strings.ContainsFunc(host, func(c rune) bool { return c == 0 || c > unicode.MaxASCII }) {
			continue
		}
		if r := s.Agentfense("create", s.Name, "--allow-net", host); r.Code != 125 {
			t.Errorf("%q: exit %d, want 125: %s", host, r.Code, r.Stderr)
		}
	}
	if r := s.Agentfense("create", s.Name, "--allow-net", "ex\u00adample。com", "--allow-net", "Bücher.example."); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	contains(t, "inspect", s.Agentfense("inspect", s.Name).Stdout, "named example.com:443 xn--bcher-kva.example:443")
}

package harness

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// NameServer makes the host's resolver ask a name server of the world for what Names does not
// know. records says what there is of a name, each "A ADDRESS", "AAAA ADDRESS" or "CNAME NAME". The
// function that NameServer returns has the names that were asked for. It lasts until the test ends.
func (w *World) NameServer(t testing.TB, records func(name string) []string) (asked func() []string) {
	t.Helper()
	var c net.PacketConn
	var err error
	w.there(func() { c, err = net.ListenPacket("udp", PublicAddr+":53") })
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{records: records}
	var serving sync.WaitGroup
	serving.Go(func() { s.serve(c) })
	t.Cleanup(func() {
		c.Close()
		serving.Wait()
		if s.err != nil {
			t.Error(s.err)
		}
	})
	cover(t, "/etc/resolv.conf", "nameserver "+PublicAddr+"\n")
	return s.asked
}

// nameServer answers for all domains.
type nameServer struct {
	records func(name string) []string
	err     error // of what a test told it

	mu    sync.Mutex
	names []string
}

func (s *nameServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

func (s *nameServer) serve(c net.PacketConn) {
	packet := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(packet)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(packet[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		answer, err := s.answer(m.ID, m.Questions[0])
		if err == nil {
			_, err = c.WriteTo(answer, from)
		}
		if err != nil {
			s.err = err
			return
		}
	}
}

// answer tells the records of a name, and of those that it is an alias of.
func (s *nameServer) answer(id uint16, q dnsmessage.Question) ([]byte, error) {
	name := strings.TrimSuffix(q.Name.String(), ".")
	s.mu.Lock()
	s.names = append(s.names, name)
	s.mu.Unlock()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	for next := name; next != ""; {
		name, next = next, ""
		owner, err := dnsmessage.NewName(name + ".")
		if err != nil {
			return nil, err
		}
		for _, text := range s.records(name) {
			body, alias, err := parseRecord(text)
			if err != nil {
				return nil, err
			}
			if alias != "" {
				next = alias
			} else if !isOfType(body, q.Type) {
				continue
			}
			header := dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET}
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: body})
		}
	}
	if len(m.Answers) == 0 && len(s.records(name)) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	return m.Pack()
}

func isOfType(body dnsmessage.ResourceBody, kind dnsmessage.Type) bool {
	_, is4 := body.(*dnsmessage.AResource)
	return is4 == (kind == dnsmessage.TypeA)
}

// parseRecord reads a record of NameServer.
func parseRecord(text string) (body dnsmessage.ResourceBody, alias string, err error) {
	kind, value, _ := strings.Cut(text, " ")
	if kind == "CNAME" {
		name, err := dnsmessage.NewName(value + ".")
		return &dnsmessage.CNAMEResource{CNAME: name}, value, err
	}
	addr, err := netip.ParseAddr(value)
	switch {
	case err != nil:
		return nil, "", err
	case kind == "A" && addr.Is4():
		return &dnsmessage.AResource{A: addr.As4()}, "", nil
	case kind == "AAAA" && addr.Is6():
		return &dnsmessage.AAAAResource{AAAA: addr.As16()}, "", nil
	}
	return nil, "", fmt.Errorf("record %q: want A ADDRESS, AAAA ADDRESS or CNAME NAME", text)
}

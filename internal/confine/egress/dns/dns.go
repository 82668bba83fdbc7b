// Package dns reads the queries of a sandbox and writes answers to them. But for the sockets that
// it serves it is pure.
package dns

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

// answerTTL is how long an answer may be kept, in seconds: a name's address never changes.
const answerTTL = 60

// A Question is what a DNS query asks.
type Question struct {
	Header dnsmessage.Header
	dnsmessage.Question
}

// Read reads a query. An error means that it is none, and gets no answer.
func Read(packet []byte) (Question, error) {
	var q Question
	var p dnsmessage.Parser
	var err error
	if q.Header, err = p.Start(packet); err != nil {
		return q, err
	}
	if q.Header.Response {
		return q, dnsmessage.ErrNotStarted
	}
	q.Question, err = p.Question()
	return q, err
}

// Host is the name that q asks for. It may be none that a host can have.
func (q *Question) Host() (allowlist.Host, error) { return allowlist.ParseName(q.Name.String()) }

// IsAskedFirst reports whether q is what a program asks when it looks for a name. It asks for AAAA
// and HTTPS records besides.
func (q *Question) IsAskedFirst() bool {
	const https = dnsmessage.Type(65)
	return q.Type != dnsmessage.TypeAAAA && q.Type != https
}

// Refuse answers with a code and no records.
func (q *Question) Refuse(code dnsmessage.RCode) []byte { return q.build(code, netip.Addr{}) }

// Answer says that the name has one IPv4 address, and no records of other types.
func (q *Question) Answer(addr netip.Addr) []byte {
	if q.Type != dnsmessage.TypeA {
		addr = netip.Addr{}
	}
	return q.build(dnsmessage.RCodeSuccess, addr)
}

// build makes a response, with an A record of addr if it is valid; nil if the name does not fit.
func (q *Question) build(code dnsmessage.RCode, addr netip.Addr) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: q.Header.ID, Response: true, OpCode: q.Header.OpCode, RecursionDesired: q.Header.RecursionDesired,
		RecursionAvailable: true, RCode: code,
	})
	if b.StartQuestions() != nil || b.Question(q.Question) != nil || b.StartAnswers() != nil {
		return nil
	}
	if addr.IsValid() {
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: answerTTL}
		if b.AResource(header, dnsmessage.AResource{A: addr.As4()}) != nil {
			return nil
		}
	}
	packet, err := b.Finish()
	if err != nil {
		return nil
	}
	return packet
}

// Asked is the name of q for a report, whatever bytes it has.
func (q *Question) Asked() string { return strings.TrimSuffix(q.Name.String(), ".") }

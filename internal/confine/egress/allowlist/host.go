// Package allowlist says which hosts a sandbox may reach: host names, rules, and presets of rules.
// It is pure.
//
// A host has one form, and every part of egress compares in that form: rules, the resolver, the
// server name of a TLS handshake and the host of an HTTP request. What cannot be brought to that
// form is refused, never guessed.
package allowlist

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Host is a host in its one form: a DNS name in lower-case ASCII without the final dot, or an IP
// address as netip.Addr writes it.
type Host string

// Bounds of a DNS name in bytes, without the final dot (RFC 1035, 2.3.4).
const (
	maxName  = 253
	maxLabel = 63
)

// ParseName returns the form of a DNS name that a program sent. Errors: Invalid, for everything
// that is not an ASCII name, an IP address in any spelling among it.
func ParseName(text string) (Host, error) {
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if name == "" {
		return "", invalidHost(text, "the name of a host is missing")
	}
	if len(name) > maxName {
		return "", invalidHost(text, "want at most 253 bytes")
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return "", invalidHost(text, "not a host name")
		}
		last = label
	}
	if isNumber(last) {
		return "", invalidHost(text, "not a host name: it ends in a number")
	}
	if strings.Contains(name, "xn--") {
		if again, err := idna.Lookup.ToASCII(name); err != nil || again != name {
			return "", invalidHost(text, "malformed internationalised name")
		}
	}
	return Host(name), nil
}

// parseTyped is ParseName of what a person wrote: letters beyond ASCII become punycode (UTS 46).
func parseTyped(text string) (Host, error) {
	if text == "*" {
		return "", invalidHost(text, "want the name of one host, or *.DOMAIN for every name below a domain")
	}
	if isASCII(text) {
		return ParseName(text)
	}
	name, err := idna.Lookup.ToASCII(text)
	if err != nil {
		return "", invalidHost(text, "not a host name")
	}
	return ParseName(name)
}

// ParseAddr returns an IP address in its usual spelling. Errors: Invalid, for zones, IPv4
// addresses within IPv6 ones, and every other spelling.
func ParseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}, invalidHost(text, "not an IP address in its usual spelling")
	}
	return addr, nil
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= 0x80 }) < 0
}

// isLabel reports whether label is one of a host name. Underscores are not in RFC 1123, but hosts
// that people reach have them.
func isLabel(label string) bool {
	if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// isNumber reports whether a last label makes a host an IPv4 address for some parser, as in 127.1
// or 0x7f000001 (WHATWG URL, "ends in a number").
func isNumber(label string) bool {
	if hex, is := strings.CutPrefix(label, "0x"); is {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func invalidHost(text, why string) error {
	return errdefs.New(errdefs.Invalid, "host %s: %s", vpath.Quote(text), why)
}

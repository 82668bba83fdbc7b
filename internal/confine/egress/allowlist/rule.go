package allowlist

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// DefaultPort is that of a rule that names none.
const DefaultPort = 443

// resolverPort is where names are resolved, at every address.
const resolverPort = 53

// Synthetic is the range of the addresses that stand for host names inside a sandbox (RFC 6598):
// no host of the internet has one of them.
var Synthetic = netip.MustParsePrefix("100.64.0.0/10")

// Localhost is this host's loopback: connections to a port of the sandbox's are passed on there.
// Its rules have any protocol.
const Localhost Host = "localhost"

// Rule allows connections to one port of a host, or of all hosts below a domain.
type Rule struct {
	Host     Host
	Wildcard bool // every name below Host, and not Host itself
	Port     uint16
	Raw      bool // any protocol; else TLS, or HTTP on port 80
	// PublicSuffix lets a wildcard be before a public suffix, below which anyone can have a name.
	PublicSuffix bool
	// Intercept opens TLS, so that each request is seen. Requests are those that are allowed, as
	// Limits returns them; "": all.
	Intercept bool
	Requests  string
}

// How a rule's text asks for any protocol, and for interception. A list of requests may stand
// behind the latter.
const (
	rawOption       = "raw"
	interceptOption = "intercept"
	// suffixOption comes before the other options.
	suffixOption = "public-suffix"
)

// String returns the rule's text in its one form, which ParseRule reads.
func (r Rule) String() string {
	text := string(r.Host)
	if strings.Contains(text, ":") {
		text = "[" + text + "]"
	}
	if r.Wildcard {
		text = "*." + text
	}
	text += ":" + strconv.Itoa(int(r.Port))
	if r.PublicSuffix {
		text += "," + suffixOption
	}
	switch {
	case r.Raw && r.Host != Localhost:
		text += "," + rawOption
	case r.Intercept:
		text += "," + interceptOption
	}
	if r.Requests != "" {
		text += " " + r.Requests
	}
	return text
}

// WithoutRequests returns the rule's text without its requests.
func (r Rule) WithoutRequests() string {
	r.Requests = ""
	return r.String()
}

// Place returns HOST:PORT, for which there is one rule.
func (r Rule) Place() string {
	r.Raw, r.PublicSuffix, r.Intercept, r.Requests = false, false, false, ""
	return r.String()
}

// ParseRule reads HOST[:PORT][,raw] or HOST[:PORT],intercept[ REQUESTS], with REQUESTS as
// METHOD[,METHOD…] PATH[; …]. HOST is a name, *.DOMAIN or an IP address, an IPv6 one in brackets;
// localhost needs a port. *.DOMAIN[:PORT],public-suffix, which other options may follow, is also of
// a DOMAIN below which anyone can have a name.
// Errors: Invalid.
func ParseRule(text string) (Rule, error) {
	place, r, err := cutOptions(text)
	if err != nil {
		return Rule{}, err
	}
	if strings.ContainsAny(place, "/@\\?#") {
		return Rule{}, invalidRule(text, "want HOST[:PORT], without a scheme, a user or a path")
	}
	host, port, named, err := splitPort(place)
	if err != nil {
		return Rule{}, invalidRule(text, err.Error())
	}
	r.Port = port
	switch domain, wildcard := strings.CutPrefix(host, "*."); {
	case wildcard:
		r.Wildcard = true
		r.Host, err = parseDomain(domain, r.PublicSuffix)
	case r.PublicSuffix:
		err = invalidRule(text, suffixOption+" goes with *.DOMAIN")
	case isAddress(host):
		r.Host, err = parseTarget(host)
	default:
		r.Host, err = parseTyped(host)
	}
	if err != nil {
		return Rule{}, err
	}
	if r.Port == resolverPort {
		return Rule{}, invalidRule(text, "port 53 is that of the sandbox's own resolver")
	}
	if err := checkLocalhost(r, named); err != nil {
		return Rule{}, invalidRule(text, err.Error())
	}
	r.Raw = r.Raw || r.Host == Localhost
	return r, nil
}

// cutOptions cuts the options off a rule's text and returns what is before them, and a rule that
// has them. Errors: Invalid.
func cutOptions(text string) (place string, r Rule, err error) {
	place, options, given := strings.Cut(text, ",")
	if first, rest, more := strings.Cut(options, ","); first == suffixOption {
		options, given, r.PublicSuffix = rest, more, true
	}
	option, requests, limited := strings.Cut(options, " ")
	if given && option != interceptOption && (option != rawOption || limited) {
		return "", Rule{}, invalidRule(text, "want HOST[:PORT], HOST[:PORT],raw or HOST[:PORT],intercept")
	}
	r.Raw, r.Intercept = option == rawOption, option == interceptOption
	if limited {
		r.Requests, err = canonicalRequests(requests)
	}
	return place, r, err
}

// checkLocalhost refuses what a rule about localhost cannot be. named: it names its port. Errors
// are for invalidRule.
func checkLocalhost(r Rule, named bool) error {
	switch {
	case r.Host == Localhost && r.Wildcard, strings.HasSuffix(string(r.Host), "."+string(Localhost)):
		return errdefs.New(errdefs.Invalid, "names below localhost are the sandbox itself; want localhost:PORT for a port of this host's loopback")
	case r.Host == Localhost && !named:
		return errdefs.New(errdefs.Invalid, "want localhost:PORT")
	case r.Host == Localhost && r.Intercept:
		return errdefs.New(errdefs.Invalid, "localhost has any protocol, so its requests are not seen; want localhost:PORT")
	}
	return nil
}

// splitPort cuts HOST[:PORT] or [IPV6][:PORT]. Errors are for invalidRule.
func splitPort(place string) (host string, port uint16, named bool, err error) {
	host, number := place, ""
	if rest, bracket := strings.CutPrefix(place, "["); bracket {
		var after string
		var closed bool
		if host, after, closed = strings.Cut(rest, "]"); !closed || !strings.Contains(host, ":") {
			return "", 0, false, errdefs.New(errdefs.Invalid, "want an IPv6 address in the brackets")
		}
		if number, named = strings.CutPrefix(after, ":"); !named && after != "" {
			return "", 0, false, errdefs.New(errdefs.Invalid, "want [ADDRESS]:PORT")
		}
	} else if strings.Count(place, ":") == 1 {
		host, number, named = strings.Cut(place, ":")
	}
	if !named {
		return host, DefaultPort, false, nil
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != number {
		return "", 0, false, errdefs.New(errdefs.Invalid, "want a port from 1 to 65535")
	}
	return host, uint16(n), true, nil
}

// isAddress reports whether host cannot be a name: it has a colon, or ends in a number.
func isAddress(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return strings.Contains(host, ":") || last != "" && isNumber(strings.ToLower(last))
}

// parseDomain reads what *. stands before: a domain that one owner has, unless any owner may.
func parseDomain(text string, anyOwner bool) (Host, error) {
	if isAddress(text) {
		return "", invalidHost(text, "an address has no names below it")
	}
	domain, err := parseTyped(text)
	if err != nil {
		return "", err
	}
	if suffix, _ := publicsuffix.PublicSuffix(string(domain)); suffix == string(domain) && !anyOwner {
		return "", errdefs.New(errdefs.Invalid, "*.%s: anyone can have a name below %[1]s, so it would allow every owner; name the hosts, or write '*.%[1]s,%[2]s' to allow every owner", domain, suffixOption)
	}
	return domain, nil
}

// parseTarget reads an address that a person allows. It may be a private one, but none by which
// the sandbox would reach the host, its links or its metadata service.
func parseTarget(text string) (Host, error) {
	addr, err := ParseAddr(text)
	switch {
	case err != nil:
		return "", err
	case addr.IsUnspecified(), addr.IsLoopback(), addr.IsMulticast(), addr.IsLinkLocalUnicast(), Synthetic.Contains(addr):
		return "", invalidHost(text, "no address of another host")
	}
	return Host(addr.String()), nil
}

// Texts returns the texts of rules.
func Texts(rules []Rule) []string {
	var texts []string
	for _, r := range rules {
		texts = append(texts, r.String())
	}
	return texts
}

// Matches reports whether r allows connections to the port of h.
func (r Rule) Matches(h Host, port uint16) bool { return r.Port == port && r.Covers(h) }

// Covers reports whether r is about h, whatever the port.
func (r Rule) Covers(h Host) bool {
	if !r.Wildcard {
		return r.Host == h
	}
	below, is := strings.CutSuffix(string(h), string(r.Host))
	return is && len(below) > 1 && strings.HasSuffix(below, ".")
}

// Includes reports whether r allows all that other allows.
func (r Rule) Includes(other Rule) bool {
	if r.Port != other.Port || other.PublicSuffix && !r.PublicSuffix || other.Raw && !r.Raw || r.Intercept && !r.includesRequests(other) {
		return false
	}
	if other.Wildcard && r.Host == other.Host {
		return r.Wildcard
	}
	return r.Covers(other.Host)
}

// Find returns the rule that allows connections to the port of h: one that names h, else the
// one of the longest domain.
func Find(rules []Rule, h Host, port uint16) (Rule, bool) {
	var found Rule
	ok := false
	for _, r := range rules {
		if r.Matches(h, port) && (!ok || moreSpecific(r, found)) {
			found, ok = r, true
		}
	}
	return found, ok
}

func moreSpecific(a, b Rule) bool {
	if a.Wildcard != b.Wildcard {
		return b.Wildcard
	}
	return len(a.Host) > len(b.Host)
}

// Ports returns the ports of h that rules allow, in order.
func Ports(rules []Rule, h Host) []uint16 {
	var ports []uint16
	for _, r := range rules {
		if r.Covers(h) {
			ports = append(ports, r.Port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// Bounds of an allowlist: each rule may take listeners, and the egress process gets all in one
// message.
const (
	maxRules = 200
	maxTexts = 32 << 10 // bytes
)

// Parse reads an allowlist as a person gives it: rules and presets (@npm). The rules are in the
// order given, each once; presets are written out. Errors: Invalid.
func Parse(texts []string) ([]Rule, error) {
	var rules []Rule
	for _, text := range texts {
		some, err := parseEntry(text)
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			if rules, err = add(rules, r); err != nil {
				return nil, err
			}
		}
	}
	return rules, nil
}

// add appends r unless it is there. One host and port has one protocol.
func add(rules []Rule, r Rule) ([]Rule, error) {
	size := len(r.String())
	for _, known := range rules {
		if known == r {
			return rules, nil
		}
		if known.Place() == r.Place() {
			return nil, invalidRule(r.String(), "allowed as "+known.String()+", too; want one of the two")
		}
		size += len(known.String())
	}
	switch {
	case len(rules) == maxRules:
		return nil, errdefs.New(errdefs.Invalid, "allowed hosts: more than %d", maxRules)
	case size > maxTexts:
		return nil, errdefs.New(errdefs.Invalid, "allowed hosts: more than %d bytes with their requests", maxTexts)
	}
	return append(rules, r), nil
}

// parseEntry reads a rule, or @PRESET[,intercept]. Of intercepted hosts of a preset only the
// requests are allowed that read.
func parseEntry(text string) ([]Rule, error) {
	entry, is := strings.CutPrefix(text, "@")
	if !is {
		r, err := ParseRule(text)
		return []Rule{r}, err
	}
	name, option, given := strings.Cut(entry, ",")
	rules, err := preset(name)
	if err != nil || !given {
		return rules, err
	}
	if option != interceptOption {
		return nil, invalidRule(text, "want @PRESET or @PRESET,intercept")
	}
	for i := range rules {
		rules[i].Intercept, rules[i].Requests = true, readingRequests
	}
	return rules, nil
}

// readingRequests are those that read.
const readingRequests = "GET,HEAD " + anyPath

func invalidRule(text, why string) error {
	return errdefs.New(errdefs.Invalid, "%s: %s", vpath.Quote(text), why)
}

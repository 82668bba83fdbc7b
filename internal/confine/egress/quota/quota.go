// Package quota says how much of its network a sandbox may use, and counts it.
//
// A Set has the limits of one thing: of the sandbox's whole network, or of one secret. It is read
// from one text, such as connections=100,out=50M. A Ledger counts totals and requests where they
// survive the egress process, and a Bucket paces. The package has no connections and no processes.
package quota

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The names of limits.
const (
	Connections = "connections" // of the network: open at once
	New         = "new"         // of the network: connections per time
	Requests    = "requests"    // of a secret, in total
	Rate        = "rate"        // of the network: bytes per second; of a secret: requests per time
	Out         = "out"         // bytes that are sent, in total
	In          = "in"          // bytes that are received, in total
)

// Limit is one limit.
type Limit struct {
	Name  string
	Max   int64
	Bytes bool          // Max is in bytes
	Per   time.Duration // of a rate
}

// Set are limits, each name once, in the order of their kinds. nil has none.
type Set []Limit

// kind is what a limit of a Set can be.
type kind struct {
	name    string
	isBytes bool
	isRate  bool
}

// networkKinds and secretKinds are in the order in which limits are written.
var (
	networkKinds = []kind{{Connections, false, false}, {New, false, true}, {Out, true, false}, {In, true, false}, {Rate, true, true}}
	secretKinds  = []kind{{Requests, false, false}, {Rate, false, true}, {Out, true, false}, {In, true, false}}
)

// NetworkNames are the names of the limits of a network.
func NetworkNames() []string { return names(networkKinds) }

func names(kinds []kind) []string {
	all := make([]string, len(kinds))
	for i, k := range kinds {
		all[i] = k.name
	}
	return all
}

// ParseNetwork reads NAME=VALUE[,NAME=VALUE…] of a network: connections=100, new=10/s, out=50M,
// in=1G, rate=1M/s. Errors: Invalid.
func ParseNetwork(texts ...string) (Set, error) { return parse(networkKinds, texts) }

// ParseSecret reads NAME=VALUE[,NAME=VALUE…] of a secret: requests=1000, rate=10/m, out=10M, in=1G.
// Errors: Invalid.
func ParseSecret(texts ...string) (Set, error) { return parse(secretKinds, texts) }

func parse(kinds []kind, texts []string) (Set, error) {
	var set Set
	for _, text := range texts {
		for part := range strings.SplitSeq(text, ",") {
			name, value, given := strings.Cut(part, "=")
			i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
			switch {
			case !given:
				return nil, invalid(part, "want NAME=VALUE, with "+strings.Join(names(kinds), ", ")+" as NAME")
			case i < 0:
				return nil, invalid(name, unknownName(name, kinds))
			case slices.ContainsFunc(set, func(l Limit) bool { return l.Name == name }):
				return nil, invalid(part, "the limit "+name+" is given twice")
			}
			l, err := kinds[i].parse(value)
			if err != nil {
				return nil, invalid(part, err.Error())
			}
			set = append(set, l)
		}
	}
	order := names(kinds)
	slices.SortFunc(set, func(a, b Limit) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
	return set, nil
}

func unknownName(name string, kinds []kind) string {
	if near := nearest.Word(name, names(kinds)); near != "" {
		return "unknown limit; did you mean " + strconv.Quote(near) + "?"
	}
	return "unknown limit; want " + strings.Join(names(kinds), ", ")
}

func invalid(text, why string) error {
	return errdefs.New(errdefs.Invalid, "%s: %s", vpath.Quote(text), why)
}

// periods are the units of time of a rate.
var periods = []struct {
	name string
	unit time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// parse reads the value of a limit. Errors are for invalid.
func (k kind) parse(value string) (Limit, error) {
	l := Limit{Name: k.name, Bytes: k.isBytes}
	amount, period, rate := strings.Cut(value, "/")
	if rate != k.isRate {
		return Limit{}, errdefs.New(errdefs.Invalid, "%s", k.want())
	}
	if rate {
		for _, p := range periods {
			if p.name == period {
				l.Per = p.unit
			}
		}
		if l.Per == 0 {
			return Limit{}, errdefs.New(errdefs.Invalid, "%s", k.want())
		}
	}
	ok := false
	if k.isBytes {
		l.Max, ok = parseBytes(amount)
	} else {
		n, err := strconv.ParseInt(amount, 10, 32)
		l.Max, ok = n, err == nil && n > 0
	}
	if !ok {
		return Limit{}, errdefs.New(errdefs.Invalid, "%s", k.want())
	}
	return l, nil
}

// want says what a value is.
func (k kind) want() string {
	switch {
	case k.isBytes && k.isRate:
		return "want bytes per second, minute or hour, such as " + k.name + "=1M/s"
	case k.isBytes:
		return "want a number of bytes with K, M, G or T, such as " + k.name + "=50M"
	case k.isRate:
		return "want a positive number per second, minute or hour, such as " + k.name + "=10/s"
	}
	return "want a positive number, such as " + k.name + "=100"
}

// suffixes of numbers of bytes, the largest first.
var suffixes = []struct {
	name  string
	bytes int64
}{{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"", 1}}

func parseBytes(text string) (int64, bool) {
	for _, s := range suffixes {
		digits, is := strings.CutSuffix(strings.ToUpper(text), s.name)
		if !is {
			continue
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || strings.Trim(digits, "0123456789.") != "" || n*float64(s.bytes) < 1 || n*float64(s.bytes) > math.MaxInt64/4 {
			return 0, false
		}
		return int64(n * float64(s.bytes)), true
	}
	return 0, false
}

// String returns the limit's text, such as out=50M.
func (l Limit) String() string {
	amount := strconv.FormatInt(l.Max, 10)
	if l.Bytes {
		for _, s := range suffixes {
			if l.Max%s.bytes == 0 {
				amount = strconv.FormatInt(l.Max/s.bytes, 10) + s.name
				break
			}
		}
	}
	for _, p := range periods {
		if p.unit == l.Per {
			amount += "/" + p.name
		}
	}
	return l.Name + "=" + amount
}

// String returns the text of the limits in its one form, which the parsers read. "": none.
func (s Set) String() string {
	texts := make([]string, len(s))
	for i, l := range s {
		texts[i] = l.String()
	}
	return strings.Join(texts, ",")
}

// Get returns a limit by its name.
func (s Set) Get(name string) (Limit, bool) {
	for _, l := range s {
		if l.Name == name {
			return l, true
		}
	}
	return Limit{}, false
}

// Within returns limits of a network that are not above bounds: of a limit that both have, the
// lower one.
func (s Set) Within(bounds Set) Set {
	var all Set
	for _, k := range networkKinds {
		own, has := s.Get(k.name)
		bound, bounded := bounds.Get(k.name)
		switch {
		case has && bounded:
			all = append(all, own.within(bound))
		case has:
			all = append(all, own)
		case bounded:
			all = append(all, bound)
		}
	}
	return all
}

// within returns a limit that is not above bound, also in what it allows at once: a Bucket is as
// large as Max. That of bytes has a second's.
func (l Limit) within(bound Limit) Limit {
	switch {
	case l.perSecond() > bound.perSecond():
		return bound
	case l.Per == 0, l.Bytes, l.Max <= bound.Max:
		return l
	}
	for _, p := range slices.Backward(periods) {
		if p.unit >= l.Per {
			continue
		}
		if n := l.Max / int64(l.Per/p.unit); n > 0 && n <= bound.Max {
			return Limit{Name: l.Name, Max: n, Per: p.unit}
		}
	}
	return Limit{Name: l.Name, Max: bound.Max, Per: l.Per}
}

// Or returns limits of a network, and those of others of which it has none.
func (s Set) Or(others Set) Set {
	all := slices.Clone(s)
	for _, l := range others {
		if _, has := s.Get(l.Name); !has {
			all = append(all, l)
		}
	}
	return all.Within(nil)
}

// perSecond makes limits of one name comparable.
func (l Limit) perSecond() float64 {
	if l.Per == 0 {
		return float64(l.Max)
	}
	return float64(l.Max) / l.Per.Seconds()
}

package quota

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestLimitsHaveOneForm(t *testing.T) {
	for text, want := range map[string]string{
		"connections=100":                    "connections=100",
		"rate=1m/s,out=50M,connections=1":    "connections=1,out=50M,rate=1M/s",
		"in=1.5G,new=10/m":                   "new=10/m,in=1536M",
		"out=1000":                           "out=1000",
		"new=1024/s,rate=1024K/h,in=0.5k":    "new=1024/s,in=512,rate=1M/h",
		"in=1T,out=1024T,connections=100000": "connections=100000,out=1024T,in=1T",
	} {
		set, err := ParseNetwork(text)
		if err != nil || set.String() != want {
			t.Errorf("%s: got %s, %v; want %s", text, set, err, want)
		}
		again, err := ParseNetwork(set.String())
		if diff := cmp.Diff(set, again); err != nil || diff != "" {
			t.Errorf("%s is not read as it is written: %v %s", set, err, diff)
		}
	}
	set, err := ParseSecret("rate=1024/s", "requests=1000,in=1M")
	if err != nil || set.String() != "requests=1000,rate=1024/s,in=1M" {
		t.Errorf("got %s, %v", set, err)
	}
}

func TestMalformedLimitsAreRefused(t *testing.T) {
	for text, why := range map[string]string{
		"":                           "want NAME=VALUE",
		"connections":                "want NAME=VALUE",
		"connection=1":               `did you mean "connections"?`,
		"requests=1":                 "unknown limit",
		"xyz=1":                      "want connections, new, out, in, rate",
		"out=1M,in=1M,out=2M":        "given twice",
		"out=1M,":                    "want NAME=VALUE",
		"connections=0":              "want a positive number",
		"connections=-1":             "want a positive number",
		"connections=1.5":            "want a positive number",
		"connections=1/s":            "want a positive number",
		"connections=99999999999999": "want a positive number",
		"new=10":                     "such as new=10/s",
		"new=10/d":                   "such as new=10/s",
		"new=10/":                    "such as new=10/s",
		"rate=1M":                    "such as rate=1M/s",
		"out=1M/s":                   "such as out=50M",
		"out=1X":                     "such as out=50M",
		"out=0":                      "such as out=50M",
		"out=1e3":                    "such as out=50M",
		"out=0x10":                   "such as out=50M",
		"out=NaN":                    "such as out=50M",
		"out=99999999T":              "such as out=50M",
		"out= 1M":                    "such as out=50M",
	} {
		if set, err := ParseNetwork(text); !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, %v; want %s", text, set, err, why)
		}
	}
	for _, text := range []string{"connections=1", "rate=10M/s", "requests=1K"} {
		if set, err := ParseSecret(text); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q of a secret: got %v, %v", text, set, err)
		}
	}
}

func network(t *testing.T, text string) Set {
	t.Helper()
	if text == "" {
		return nil
	}
	set, err := ParseNetwork(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestBoundsLowerLimits(t *testing.T) {
	for _, tt := range []struct{ own, bounds, want string }{
		{"out=50M", "", "out=50M"},
		{"", "out=50M", "out=50M"},
		{"out=50M,in=1G", "out=1M", "out=1M,in=1G"},
		{"out=1M", "out=50M", "out=1M"},
		{"new=1/s", "new=30/m", "new=30/m"},
		{"new=1/m", "new=1/s,rate=1M/s", "new=1/m,rate=1M/s"},
		{"new=36000/h", "new=10/s", "new=10/s"}, // at once, too
		{"new=600/h", "new=10/s", "new=10/m"},
		{"new=30/h", "new=10/s", "new=10/h"},
		{"new=2000000000/h", "new=1000000/s", "new=555555/s"},
		{"rate=60M/m", "rate=1M/s", "rate=60M/m"}, // a second counts in any case
	} {
		if got := network(t, tt.own).Within(network(t, tt.bounds)).String(); got != tt.want {
			t.Errorf("%s within %s: got %s, want %s", tt.own, tt.bounds, got, tt.want)
		}
	}
	if got := network(t, "out=50M").Or(network(t, "connections=3,out=1M")).String(); got != "connections=3,out=50M" {
		t.Errorf("one before another: %s", got)
	}
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestTotalsGiveWhatIsLeft(t *testing.T) {
	l := NewLedger(network(t, "out=100"), map[string]Set{"KEY": {{Name: Out, Max: 10}}})
	if got := l.Take("", Out, 60, 0, noon); got.Granted != 60 || got.Reached != nil {
		t.Errorf("first: %+v", got)
	}
	if got := l.Take("KEY", Out, 10, 0, noon); got.Granted != 10 || got.Reached != nil {
		t.Errorf("of the secret: %+v", got)
	}
	if got := l.Take("", Out, 60, 0, noon); got.Granted != 40 || got.Reached == nil || !got.First || got.Reached.String() != "out=100" {
		t.Errorf("the rest: %+v", got)
	}
	if got := l.Take("", Out, 1, 0, noon.Add(time.Hour)); got.Granted != 0 || got.Reached == nil || got.First {
		t.Errorf("afterwards: %+v", got)
	}
	if got := l.Take("KEY", In, 1, 2, noon); got.Granted != 3 {
		t.Errorf("without a limit, with more: %+v", got)
	}
	if got := NewLedger(network(t, "out=100"), nil).Take("", Out, 60, 60, noon); got.Granted != 100 || got.Reached != nil {
		t.Errorf("more than is left, which is not needed: %+v", got)
	}
	if got := l.Take("", In, 1<<40, 0, noon); got.Granted != 1<<40 {
		t.Errorf("without a limit: %+v", got)
	}
}

func TestConnectionsWaitForTheirTurn(t *testing.T) {
	l := NewLedger(network(t, "new=2/s"), nil)
	var waits []time.Duration
	for range 4 {
		waits = append(waits, l.Take("", New, 1, 0, noon).Wait)
	}
	want := []time.Duration{0, 0, time.Second / 2, time.Second}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
	for range 18 {
		l.Take("", New, 1, 0, noon)
	}
	if got := l.Take("", New, 1, 0, noon); got.Granted != 0 || got.Reached == nil {
		t.Errorf("after a crowd: %+v", got)
	}
	if got := l.Take("", New, 1, 0, noon.Add(time.Minute)); got.Granted != 1 || got.Wait != 0 {
		t.Errorf("a minute later: %+v", got)
	}
}

func TestRequestsOfASecret(t *testing.T) {
	set, err := ParseSecret("requests=3,rate=2/m")
	if err != nil {
		t.Fatal(err)
	}
	l := NewLedger(nil, map[string]Set{"KEY": set})
	for i, want := range []string{"", "", "rate=2/m"} {
		if got := reached(l.Request("KEY", noon)); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	for i, want := range []string{"", "requests=3"} { // what was refused does not count
		if got := reached(l.Request("KEY", noon.Add(time.Minute))); got != want {
			t.Errorf("%d a minute later: %s, want %s", i, got, want)
		}
	}
	if got := l.Request("OTHER", noon); got.Granted != 1 {
		t.Errorf("one without limits: %+v", got)
	}
	if len(l.used) != 1 { // who asks chooses the names
		t.Errorf("counted: %v", l.used)
	}
}

func reached(a Answer) string {
	if a.Reached == nil {
		return ""
	}
	return a.Reached.String()
}

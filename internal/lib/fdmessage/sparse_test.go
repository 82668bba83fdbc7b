package fdmessage

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	A int
	B string `json:"b,omitempty"`
}

type sparse struct {
	Op     string         `json:"op"`
	One    *inner         `json:"one,omitempty"`
	Some   []inner        `json:"some,omitempty"`
	Map    map[string]int `json:"map,omitempty"`
	Paths  [][]byte       `json:"paths,omitempty"`
	Array  [0]int         `json:"array,omitempty"`
	Struct inner          `json:"struct"`
	At     time.Time      `json:"at"`
	Any    any            `json:"any,omitempty"`
	N      int            `json:"n,omitempty"`
	OK     bool           `json:"ok,omitempty"`
	Always bool           `json:"always"`
}

type named struct {
	F int `json:"f"`
	g int
}

type bare struct{ F int }

type embeds struct {
	bare
	G int `json:"g"`
}

type quotes struct {
	F int `json:"f,string"`
}

type leavesOut struct {
	F int `json:"-"`
}

type own struct {
	F int `json:"f"`
}

func (own) MarshalJSON() ([]byte, error) { return []byte(`"own"`), nil }

func TestMarshalWritesWhatPackageJSONWrites(t *testing.T) {
	for _, message := range []any{
		sparse{},
		sparse{Op: "<a>\n\xff"},
		sparse{Op: "x", One: &inner{}, Some: []inner{{A: 1, B: "&"}}, N: -1, OK: true, Always: true},
		sparse{Some: []inner{}, Map: map[string]int{}, Paths: [][]byte{nil, {0, 255}}},
		sparse{Map: map[string]int{"b": 1, "a": 0}, Any: 0, At: time.Unix(1, 5).UTC()},
		&sparse{N: 7},
		named{F: 1, g: 2},
		bare{1},
		embeds{bare{1}, 2},
		quotes{1},
		leavesOut{1},
		own{1},
		map[string]int{"a": 1},
		nil, "text",
	} {
		want, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		got, err := marshal(message)
		if err != nil || string(got) != string(want) {
			t.Errorf("%T %+v: %s, %v; want %s", message, message, got, err, want)
		}
	}
}

func TestUnmarshalReadsWhatPackageJSONReads(t *testing.T) {
	for _, body := range []string{
		`{}`, `null`, `{"op":"x","n":7,"ok":true,"always":true,"unknown":{"a":[1]}}`, ` { "op" : "\u003ca" } `,
		`{"one":{"A":1,"b":"c"},"some":[{"A":2}],"map":{"a":1},"paths":["AP8="],"struct":{"A":3},"any":[1],"at":"2026-01-02T03:04:05Z"}`,
		`{"one":null,"some":null,"n":null}`, `{"op":"` + strings.Repeat("long", sparseBytes/4) + `"}`,
	} {
		var want, got sparse
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatal(err)
		}
		if err := unmarshal([]byte(body), &got); err != nil {
			t.Errorf("%.80s: %v", body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.80s (-want +got):\n%s", body, diff)
		}
	}
	var text string
	if err := unmarshal([]byte(`"a"`), &text); err != nil || text != "a" {
		t.Errorf("not a struct: %q, %v", text, err)
	}
}

func TestUnmarshalRefusesWhatIsNoMessage(t *testing.T) {
	for _, body := range []string{``, `{`, `[]`, `1`, `{"n":"x"}`, `{"one":{"A":"x"}}`, `{"ok":1}`, `{} {}`} {
		if err := unmarshal([]byte(body), &sparse{}); err == nil {
			t.Errorf("%s: read", body)
		}
	}
}

func TestMarshalRefusesWhatJSONCannotSay(t *testing.T) {
	_, err := marshal(sparse{Any: func() {}})
	if _, is := errors.AsType[*json.UnsupportedTypeError](err); !is {
		t.Errorf("a function: %v", err)
	}
}

func TestOnlyNamedFieldsArePlain(t *testing.T) {
	if !isPlain(reflect.TypeFor[sparse]()) {
		t.Error("fields with names are not plain")
	}
	for _, other := range []reflect.Type{reflect.TypeFor[named](), reflect.TypeFor[bare](), reflect.TypeFor[embeds](), reflect.TypeFor[quotes](), reflect.TypeFor[leavesOut](), reflect.TypeFor[own]()} {
		if isPlain(other) {
			t.Errorf("%s is plain", other)
		}
	}
}

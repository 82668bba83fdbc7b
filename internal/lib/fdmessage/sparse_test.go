package fdmessage

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"
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
	Struct inner          `json:"struct,omitempty"`
	At     time.Time      `json:"at,omitempty"`
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
		&sparse{N: 7}, named{F: 1, g: 2}, bare{1}, embeds{bare{1}, 2}, quotes{1}, leavesOut{1}, own{1},
		map[string]int{"a": 1}, nil, "text",
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

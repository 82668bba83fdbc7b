package service

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestVariablesOfACommandAreBoundedWithThoseRemembered(t *testing.T) {
	long := strings.Repeat("x", maxArgumentBytes-2)
	all := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		if err := checkVariables(all, map[string]string{name: long}); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkVariables(all, map[string]string{"a": "replaced"}); err != nil || all["a"] != "replaced" {
		t.Errorf("one in the place of another: %v", err)
	}
	if err := checkVariables(all, map[string]string{"h": long, "i": long}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("more than there is room for: %v", err)
	}
	for name, given := range map[string]map[string]string{
		"no name": {"": "x"}, "an equals sign": {"a=b": "x"}, "NUL in a name": {"a\x00": "x"}, "NUL in a value": {"a": "\x00"}, "too long": {"a": long + "xx"},
	} {
		if err := checkVariables(map[string]string{}, given); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

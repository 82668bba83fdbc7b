package audit

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAnEventOfALaterVersionIsKept(t *testing.T) {
	later := encoded{kind: "novel", time: time.Unix(0, 0).UTC(), body: []byte(`{"key":1}`)}
	line, head, err := later.line(&Options{Sandbox: "fix", ID: "sb"}, Head{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(line[:len(line)-1])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Event(Unknown{Name: "novel"}), got.Event); diff != "" || got.Hash != head.Hash {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(got.Raw), `"key":1`) {
		t.Errorf("Raw = %s, want the fields", got.Raw)
	}
}

func TestTextsTakesPathsAndStrings(t *testing.T) {
	type path string
	if diff := cmp.Diff([]Text{"/a", "/\xff"}, Texts([]path{"/a", "/\xff"})); diff != "" {
		t.Errorf("Texts (-want +got):\n%s", diff)
	}
}

// TestTheReferenceNamesEachField keeps docs/audit.md complete.
func TestTheReferenceNamesEachField(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]reflect.Type{"Every record": reflect.TypeFor[header]()}
	for kind, decode := range decoders {
		ev, err := decode([]byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		parts[string(kind)] = reflect.TypeOf(ev)
	}
	for heading, typ := range parts {
		_, section, ok := strings.Cut(string(doc), "\n### "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		if !ok {
			t.Errorf("docs/audit.md has no section %q", heading)
		}
		for _, field := range reflect.VisibleFields(typ) {
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(section, "| `"+key+"` |") {
				t.Errorf("docs/audit.md, section %s: no row for `%s`", heading, key)
			}
		}
	}
}

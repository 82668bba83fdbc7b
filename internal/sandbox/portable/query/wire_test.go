package query

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// written is what a writer writes.
func written(write func(w writer)) string {
	var out bytes.Buffer
	w := writer{bufio.NewWriter(&out)}
	write(w)
	w.Flush()
	return out.String()
}

func answer(output string, most int) (Rows, error) {
	return readAnswer(bufio.NewReader(strings.NewReader(output)), most)
}

func whole(w writer) {
	w.columns([]string{"a", "b"})
	_ = w.row([]any{nil, int64(-1)}) // both are values
	_ = w.row([]any{"text", []byte("blob")})
	w.end(true)
}

func TestMessages(t *testing.T) {
	output := written(whole)
	got, err := answer(output, 2)
	want := Rows{Columns: []string{"a", "b"}, Values: [][]any{{nil, int64(-1)}, {"text", []byte("blob")}}, More: true}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for n := range output {
		if rows, err := answer(output[:n], 2); !errors.Is(err, errBroken) || rows.Columns != nil {
			t.Errorf("the first %d bytes: %v, %v, want errBroken", n, rows, err)
		}
	}
	if _, err := answer(output, 1); !errors.Is(err, errBroken) {
		t.Errorf("a row too many: %v, want errBroken", err)
	}
}

// What no process of ours writes is an error, and takes no more memory than a result may.
func TestHostileOutput(t *testing.T) {
	for name, output := range map[string]string{
		"an unknown message":     "x",
		"a row first":            "r",
		"an end first":           "e\x00",
		"columns twice":          "c\x00c\x00",
		"too many columns":       "c\xff\xff\xff\xff\x0f",
		"an endless number":      "c" + strings.Repeat("\xff", 20),
		"a long name":            "c\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"an unknown value":       "c\x01\x01ar?",
		"a third end":            "c\x00e\x02",
		"a failure of no length": "f\x02",
	} {
		if rows, err := answer(output, 10); !errors.Is(err, errBroken) || rows.Columns != nil {
			t.Errorf("%s: %v, %v, want errBroken", name, rows, err)
		}
	}
	wide := "c\xff\xff\x01" + strings.Repeat("\x00", maxColumns)
	if _, err := answer(wide+strings.Repeat("r"+strings.Repeat("n", maxColumns), 200), 1000); !errors.Is(err, errTooLarge) {
		t.Errorf("many values: %v, want errTooLarge", err)
	}
}

func TestFailures(t *testing.T) {
	for kind, want := range map[errdefs.Kind]errdefs.Kind{
		errdefs.Invalid: errdefs.Invalid, errdefs.Exhausted: errdefs.Exhausted, errdefs.Denied: errdefs.Internal, errdefs.Internal: errdefs.Internal, 200: errdefs.Internal,
	} {
		output := written(func(w writer) {
			w.columns([]string{"a"})
			w.failure(errdefs.New(kind, "a mistake"))
		})
		if rows, err := answer(output, 1); !errdefs.Is(err, want) || err.Error() != "a mistake" || rows.Columns != nil {
			t.Errorf("%v: %v, %v, want %v", kind, rows, err, want)
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(written(whole))
	f.Add(written(func(w writer) { w.failure(errMemory) }))
	f.Fuzz(func(t *testing.T, output string) {
		rows, err := answer(output, 3)
		if (err == nil) != (rows.Columns != nil) || len(rows.Values) > 3 {
			t.Errorf("%v, %v", rows, err)
		}
	})
}

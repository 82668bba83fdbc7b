//go:build linux

package client_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/client"
)

func TestExportAndSQL(t *testing.T) {
	box, _ := linked(t, open(t), "full-access", map[string]string{"f": "zero\n"})
	ctx := t.Context()
	run(t, box, "echo one >f; mkdir e")
	var patch bytes.Buffer
	e, err := box.Export(ctx, &patch, client.ExportPatch, "")
	if err != nil || e.SizeBytes != int64(patch.Len()) || e.Entries != 1 || e.Deletions != 0 || len(e.LeftOut) != 1 || e.LeftOut[0].Path != "e" {
		t.Errorf("%+v, %v", e, err)
	}
	if !strings.HasPrefix(patch.String(), "diff --git ") {
		t.Errorf("%q", patch.String())
	}
	if _, err := box.Export(ctx, &patch, "zip", ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an unknown format: %v", err)
	}
	if _, err := box.Export(ctx, full{}, client.ExportTar, ""); !errors.Is(err, errFull) {
		t.Errorf("a writer that fails: %v", err)
	}

	got, err := box.SQL(ctx, "select path, size, 1.5, null, x'00' from changes order by path desc", client.QueryOptions{MaxRows: 1, Timeout: 30 * time.Second})
	if err != nil || len(got.Columns) != 5 || !got.More {
		t.Fatalf("%+v, %v", got, err)
	}
	if diff := cmp.Diff([][]any{{"/f", int64(4), 1.5, nil, []byte{0}}}, got.Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := box.SQL(ctx, "drop table changes", client.QueryOptions{}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a statement that writes: %v", err)
	}
}

var errFull = errors.New("no room")

// full is a writer that fails.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

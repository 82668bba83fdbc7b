package wireconv

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestEveryValueOfAQuerySurvives(t *testing.T) {
	want := QueryRows{Columns: []string{"v"}, More: true}
	for _, v := range []any{nil, int64(-1), 1.5, "text", "not \xff UTF-8", "", []byte("blob")} {
		want.Values = append(want.Values, []any{v})
	}
	got, err := DecodeQueryRows(EncodeQueryRows(want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARowHasAValueForEachColumn(t *testing.T) {
	_, err := DecodeQueryRows(&sandboxv1.QuerySandboxResponse{Columns: []string{"a", "b"}, Rows: []*sandboxv1.QueryRow{{}}})
	if !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("error = %v", err)
	}
}

//go:build linux

package client_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentfense/agentfense/client"
)

func TestResultTellsWhatWasDeniedAndChanged(t *testing.T) {
	box, _ := linked(t, open(t), "development", map[string]string{"f": "1", "old": "2", "a.key": "3"})
	want := client.Effects{
		Denied:       []client.Denial{{Path: "a.key", Operation: "open", Permission: client.None, Rule: "**/*.key", RuleIndex: 7, Program: "cat", Count: 1}},
		DeniedCount:  1,
		Changed:      []client.FileChange{{Path: "f", Kind: "modified"}, {Path: "new", Kind: "renamed", OldPath: "old"}},
		ChangedCount: 2,
	}
	check := func(r *client.ExecResult) {
		t.Helper()
		if diff := cmp.Diff(want, r.Effects, cmpopts.IgnoreFields(client.Effects{}, "ExecID"), cmpopts.IgnoreFields(client.Denial{}, "PID")); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
		if r.ExecID == "" || len(r.Denied) == 1 && r.Denied[0].PID == 0 {
			t.Errorf("effects %+v", r.Effects)
		}
		run(t, box, "mv new old")
	}
	const command = "cat a.key; echo x >>f; mv old new"
	check(run(t, box, command))
	var out bytes.Buffer
	r, err := box.ExecStream(t.Context(), command, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	check(r)
	session, err := box.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r, err = session.Exec(t.Context(), command); err != nil {
		t.Fatal(err)
	}
	check(r)
}

package inner_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/confine/isolate"
)

func TestSplitOff(t *testing.T) {
	areas, mounts := []string{"/work", "/tmp"}, []string{"/opt/tool", "/opt/file"}
	for _, tt := range []struct {
		name, args string
		covers     []isolate.Covering
		hidden     []string
		err        string
	}{
		{name: "nothing is shown", args: "", hidden: mounts},
		{name: "everything is shown", args: "--ro-bind / /"},
		{name: "one mount is shown", args: "--ro-bind /opt/tool /opt/tool", hidden: []string{"/opt/file"}},
		{name: "one mount is hidden", args: "--bind / / --tmpfs /opt/tool", hidden: []string{"/opt/tool"}},
		{name: "the root is hidden later", args: "--bind / / --tmpfs /", hidden: mounts},
		{name: "hidden and shown again", args: "--bind / / --tmpfs /opt --ro-bind /opt /opt"},
		{name: "in an area", args: "--bind / / --tmpfs /work/x --ro-bind /dev/null /tmp/y"},
		{name: "system directories", args: "--bind / / --perms 0500 --tmpfs /usr/share --remount-ro /usr/share --ro-bind /dev/null /etc/hosts", covers: []isolate.Covering{
			{Path: "/usr/share", Mode: 0o500, ReadOnly: true}, {Path: "/etc/hosts", File: true, Mode: 0o444},
		}},
		{name: "a cover above covers", args: "--bind / / --tmpfs /usr/share/x --tmpfs /usr", covers: []isolate.Covering{{Path: "/usr", Mode: 0o755}}},
		{name: "below what is hidden", args: "--bind / / --tmpfs /usr --ro-bind /usr/bin /usr/bin", err: `/usr/bin: cannot be shown in /usr, which is hidden`},
		{name: "a part of a mount", args: "--ro-bind /opt/tool/bin /opt/tool/bin", err: "the mount /opt/tool can only be shown as a whole"},
		{name: "contents in a system directory", args: "--ro-bind-data 3 /etc/hosts", err: "/etc/hosts: a file with contents is only possible in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := inner.Parse(append(strings.Fields(tt.args), "sh"), outer("content"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := inner.SplitOff(r.Steps, areas, mounts)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Hidden) != len(tt.hidden) || len(tt.hidden) > 0 && cmp.Diff(tt.hidden, got.Hidden) != "" {
				t.Errorf("hidden: got %q, want %q", got.Hidden, tt.hidden)
			}
			if len(got.Covers) != len(tt.covers) || len(tt.covers) > 0 && cmp.Diff(tt.covers, got.Covers) != "" {
				t.Errorf("covers: got %+v, want %+v", got.Covers, tt.covers)
			}
		})
	}
}

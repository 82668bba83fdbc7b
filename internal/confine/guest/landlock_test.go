package guest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/confine/landlock"
)

func TestPlacesOfAMountTable(t *testing.T) {
	table := `21 1 0:20 / / ro,nosuid - tmpfs tmpfs rw,size=1k
22 21 8:1 /usr /usr ro,nosuid,relatime - ext4 /dev/sda1 rw
23 21 0:44 / /workspace/a\040b rw,nosuid - fuse.agentfense agentfense rw,user_id=0
24 21 0:45 / /data rw - squashfs /dev/loop0 ro,errors=continue
25 21 0:46 / /readme rw,romance - tmpfs tmpfs rw
broken
`
	want := []landlock.Place{
		{Path: "/usr"}, {Path: "/workspace/a b", Writable: true}, {Path: "/data"}, {Path: "/readme", Writable: true},
	}
	if diff := cmp.Diff(want, placesOf(table)); diff != "" {
		t.Error(diff)
	}
	if got := placesOf("21 1 0:20 / / rw - overlay overlay rw\n"); len(got) != 1 || !got[0].Writable {
		t.Errorf("a root that is no tmpfs: %v", got)
	}
}

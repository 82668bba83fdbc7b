package fusefs_test

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// TestALinkIsJudgedByTheRulesThatItIsMadeUnder: a link that was under way when the rules
// changed would give another name to a file that they hide.
func TestALinkIsJudgedByTheRulesThatItIsMadeUnder(t *testing.T) {
	v := mount(t, nil, "**=write")
	v.write("secret", "x")
	in := &fuse.LinkIn{InHeader: fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}, Oldnodeid: v.NodeID("secret")}
	answer := make(chan fuse.Status, 1)
	v.ChangeRulesAfter(func() {
		go func() { answer <- v.Link(nil, in, "further", new(fuse.EntryOut)) }()
		testenv.Eventually(t, "the link is asked for", func() bool { return v.Stats()["link"] == 1 })
	}, compile(t, "**=write", "/secret=none"))
	if got := <-answer; got != fuse.Status(unix.EACCES) {
		t.Errorf("linking answers %v, want EACCES", got)
	}
	if got := v.names(""); got != "" {
		t.Errorf("the view has %s", got)
	}
}

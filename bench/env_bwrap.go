package main

import (
	"context"
	"os"
	"os/exec"

	"github.com/agentfense/agentfense/bench/host"
)

// bwrap is a plain bubblewrap bind: the native file system seen from within
// namespaces, without policy or delta.
type bwrap struct {
	plain
	path string
}

func newBwrap(d *disk) candidate {
	path, err := host.LookPath("bwrap")
	b := &bwrap{plain: plain{disk: d, name: "bwrap bind"}, path: path}
	b.wrap = b.command
	return candidate{place: b, err: err}
}

func (b *bwrap) command(root string) []string {
	return []string{b.path, "--ro-bind", "/", "/", "--bind", root, root, "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--"}
}

// Memory has nothing to walk: a bind keeps nothing per file.
func (b *bwrap) Memory(ctx context.Context, walked bool) (int64, error) {
	if walked {
		return 0, errNotComparable
	}
	return sessionMemory(ctx, b.disk.Self(), func() (*session, error) {
		argv := append(b.command(b.disk.Source()), serveCommand(b.disk.Self(), b.disk.Source())...)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = os.Environ()
		return startSession(ctx, cmd)
	}, false)
}

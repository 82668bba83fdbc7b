package network_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// git over ssh needs a rule with raw.
func TestGitOverSSH(t *testing.T) {
	testenv.Command(t, "dropbear", "dropbearkey", "ssh", "ssh-keygen", "git", "unshare")
	harness.NeedWorld(t)
	world.Names(t, names...)
	dir := harness.OpenDir(t)
	must := func(script string) string {
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	// The host's user root has another home there, where the client's key may log in.
	must(`mkdir -m 0755 client && mkdir -m 0700 server server/.ssh && ssh-keygen -q -t ed25519 -N '' -f client/key && chmod 0644 client/key
cp client/key.pub server/.ssh/authorized_keys && chmod 0600 server/.ssh/authorized_keys
echo "root:x:0:0::$PWD/server:/bin/sh" > server/passwd && dropbearkey -t ed25519 -f server/hostkey >/dev/null 2>&1`)
	hostKey := must("dropbearkey -y -f server/hostkey | grep ^ssh-")
	if err := os.WriteFile(filepath.Join(dir, "client", "known_hosts"), []byte("example.com "+hostKey), 0o644); err != nil {
		t.Fatal(err)
	}
	repository(t, filepath.Join(dir, "server", "repo.git"))
	go serveEach(world.Listen(t, harness.PublicAddr+":22"), func(c net.Conn) { serveSSH(c, filepath.Join(dir, "server")) })
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		const clone = `install -m 0600 /opt/ssh/key /tmp/key && cd /tmp && export HOME=/tmp GIT_SSH_COMMAND='ssh -F none -i /tmp/key -o UserKnownHostsFile=/opt/ssh/known_hosts -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes'
git clone -q ssh://root@example.com/~/repo.git clone && cat clone/README || echo refused`
		mount := []string{"--mount", filepath.Join(dir, "client") + ":/opt/ssh", "--allow-net"}
		want(t, s.Run(clone, append(mount, "example.com:22")...), "refused\n")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "example.com port 22: neither TLS nor, on port 80, HTTP")
		want(t, s.Run(clone, append(mount, "example.com:22,raw")...), "hello\n")
	})
}

// serveSSH lets a real server talk, which knows the one user whose home is at dir.
func serveSSH(c net.Conn, dir string) {
	file, err := c.(*net.TCPConn).File()
	if err != nil {
		return
	}
	defer file.Close()
	const script = `mount --bind "$1/passwd" /etc/passwd && exec dropbear -i -r "$1/hostkey"`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", dir)
	cmd.Stdin, cmd.Stdout = file, file
	_ = cmd.Run() // the client notices
}

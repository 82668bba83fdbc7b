package attack_test

import (
	"bytes"
	"crypto/sha256"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

func init() {
	open := func(path string, flags int) probe {
		return func() error { _, err := unix.Open(path, flags, 0); return err }
	}
	probes["write our own program"] = open("/proc/self/exe", unix.O_WRONLY)
	probes["truncate our own program"] = open("/opt/program", unix.O_WRONLY|unix.O_TRUNC)
	probes["write PID 1's program"] = open("/proc/1/exe", unix.O_WRONLY)
	probes["read PID 1's program"] = open("/proc/1/exe", unix.O_RDONLY)
	probes["run PID 1's program"] = func() error {
		return unix.Exec("/proc/1/exe", []string{"agentfense", "version"}, nil)
	}
	probes["write the leader's program"] = func() error {
		_, err := unix.Open("/proc/"+itoa(os.Getppid())+"/exe", unix.O_WRONLY, 0)
		return err
	}
}

// The binary that is PID 1 inside is the host's own agentfense; it can be
// neither written nor replaced from inside (CVE-2019-5736).
func TestOwnBinaryCannotBeWritten(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		before := digest(t, s.Binary)
		wantAnswers(t, s, map[string]string{
			"write our own program":      "EROFS ETXTBSY EACCES",
			"truncate our own program":   "EROFS ETXTBSY EACCES",
			"write PID 1's program":      "EACCES",
			"read PID 1's program":       "EACCES",
			"run PID 1's program":        "EACCES",
			"write the leader's program": "EACCES",
		})
		prints(t, s, "ls -A /run; readlink /proc/1/exe; find / -xdev -name '*agentfense*' -type f 2>&- | grep -v ^$PWD; true", "agentfense\n") // the directory of the notes
		if !bytes.Equal(before, digest(t, s.Binary)) {
			t.Error("the binary changed")
		}
	})
}

func digest(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return sum[:]
}

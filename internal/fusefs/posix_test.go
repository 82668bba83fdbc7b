package fusefs_test

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

func TestPosix(t *testing.T) {
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			if name == "FcntlFlockLocksFile" {
				t.Skip("asks that a process conflict with itself, which no local file system does")
			}
			v := mount(t, nil, "**=write")
			test(t, v.dir)
		})
	}
}

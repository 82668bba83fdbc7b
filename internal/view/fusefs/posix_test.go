package fusefs_test

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// inapplicable are the tests of the suite that do not apply, and why. Every other test must
// run: a skip is a failure here.
var inapplicable = map[string]string{
	"FcntlFlockLocksFile": "it asks that a process conflict with itself, which no local file system does",
	"XAttr":               "there are no extended attributes (TestExtendedAttributesDoNotExist)",
	"XAttrLarge":          "there are no extended attributes (TestExtendedAttributesDoNotExist)",
}

func TestPosix(t *testing.T) {
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			if reason, ok := inapplicable[name]; ok {
				t.Skip(reason)
			}
			v := mount(t, nil, "**=write")
			t.Cleanup(func() {
				if t.Skipped() {
					t.Error("it was skipped for a reason we do not know")
				}
			})
			test(t, v.dir)
		})
	}
	for name := range inapplicable {
		if posixtest.All[name] == nil {
			t.Errorf("the suite has no test %s", name)
		}
	}
}

package agentfense_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// notInCI are programs that tests may lack, and why.
var notInCI = map[string]string{
	"cargo": "a whole toolchain, for one test",
	"rustc": "as cargo",
}

// CI fails for a test that is skipped because a program is missing, if the program is in its list.
func TestCIRequiresThePrograms(t *testing.T) {
	script, _, _ := strings.Cut(read(t, ".ci/run"), "exec ")
	out, err := exec.Command("/bin/sh", "-c", script+`printf %s "$AGENTFENSE_REQUIRE"`, ".ci/run").Output()
	if err != nil {
		t.Fatal(err)
	}
	required := strings.Split(string(out), ",")
	needs := regexp.MustCompile(`testenv\.(?:Command|Files)\(\w+(?:\.\w+)?, ([^()\n]*)\)`)
	literal := regexp.MustCompile(`"[^"]+"`)
	count := 0
	for _, f := range goFiles(t) {
		for _, call := range needs.FindAllStringSubmatch(f.text, -1) {
			for _, quoted := range literal.FindAllString(call[1], -1) {
				name, err := strconv.Unquote(quoted)
				if err != nil {
					t.Fatal(err)
				}
				if count++; notInCI[name] == "" && name != "/python3" && !slices.Contains(required, name) {
					t.Errorf("%s needs %s, which .ci/run does not require: a skip there would be no failure", f.path, name)
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("found %d needs of tests: has testenv.Command another name?", count)
	}
}

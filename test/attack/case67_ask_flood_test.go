package attack_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

// A program that asks for many files at once gets few questions through, waits for none of
// the others, is refused all of them, and leaves a log that a person can read.
func TestAFloodOfAsksIsDenied(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"w/": "", "view/plain": "x"})
	const files = 500
	for i := range files {
		s.Write(fmt.Sprintf("view/%d", i), "secret")
	}
	r := s.RunProgram(floodAsks, []string{fmt.Sprint(files)}, "--preset", "full-access", "--view", "view/", "--ask-timeout", "1s")
	wantCode(t, r, 0)
	log := readAudit(t, s)
	const most = 10 // asking.burst
	if asked, answered := log.events["access_asked"], log.events["access_answered"]; asked == 0 || asked > most || answered != asked {
		t.Errorf("%d asks and %d answers, want %d at most", asked, answered, most)
	}
	if n := log.events["asks_suppressed"]; n == 0 || n > 3 {
		t.Errorf("%d records of what was not asked, want 1 to 3", n)
	}
	if text := logLines(t, s, "access_answered"); strings.Contains(text, "allowed") {
		t.Errorf("something was allowed:\n%s", text)
	}
	if told := strings.Count(r.Stderr, "waits for an answer"); told > most {
		t.Errorf("the person is told of %d asks", told)
	}
}

// floodAsks opens many files at once, and then the same again.
var floodAsks = program("flood asks", func(in *inside, args []string) {
	var n int
	fmt.Sscan(args[0], &n)
	began := time.Now()
	for range 2 {
		var all sync.WaitGroup
		slots := make(chan struct{}, 100)
		for i := range n {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				if _, err := os.ReadFile(fmt.Sprintf("view/%d", i)); !os.IsPermission(err) {
					in.fail("file %d: %v, want a refusal", i, err)
				}
			})
		}
		all.Wait()
	}
	in.checks++
	if took := time.Since(began); took > 20*time.Second {
		in.fail("the flood took %v: what is too much waited", took)
	}
})

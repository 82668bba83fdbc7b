package attack_test

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// requestFlood asks for names that nobody has asked for before, makes and removes files, and
// lists a large directory, without end.
const requestFlood = `for k in 1 2 3 4; do
	(j=0; while :; do for n in 1 2 3 4 5 6 7 8 9; do [ -e "absent $k $j $n" ]; done; : > "own $k $j"; rm -f "own $k $j"; j=$((j+1)); done) &
	(while :; do ls -la large > /dev/null; done) &
done
echo ready
wait`

// A command that floods its view with requests, or its supervisor with refusals, leaves other
// sandboxes usable, and its own too. Each sandbox has a file system and a process of its own.
func TestRequestFlood(t *testing.T) {
	files := map[string]string{"a": "a\n"}
	for i := range 2000 {
		files[fmt.Sprintf("large/a file with a name that is not short %d", i)] = ""
	}
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, files, who...)
		wantCode(t, s.Agentfense("run", "--detach", "--name", "other", "--preset", "full-access"), 0)
		t.Cleanup(func() { s.Agentfense("stop", "other") })
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		flood := s.Command(ctx, "run", "--name", s.Name, "--preset", "full-access", "--hide", "strict:large/*7", "--", "sh", "-c", requestFlood)
		stdout, err := flood.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		flood.Stderr = &stderr
		if err := flood.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
			_ = flood.Wait()
			t.Fatalf("%q, %v\n%s", line, err, stderr.String())
		}
		for _, name := range []string{"other", s.Name} {
			for range 5 {
				r := s.Agentfense("exec", name, "--", "sh", "-c", "cat a && echo b > b && cat b && ls large | wc -l")
				if want := fmt.Sprintf("a\nb\n%d\n", len(files)-1); name == "other" && r.Stdout != want || r.Code != 0 {
					t.Errorf("%s: exit code %d, %q\n%s", name, r.Code, r.Stdout, r.Stderr)
				}
			}
		}
		wantCode(t, s.Agentfense("stop", s.Name), 0)
		_ = flood.Wait() // it was ended
	})
}

package supervise

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// TestTheClockEndsEachGrantInTime runs the clock of a supervisor by a clock of the test: at every
// second the rules in force are those of the strongest grant of a file that is valid then.
func TestTheClockEndsEachGrantInTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct {
			after, lasts int // seconds; 0: no end
			permission   policy.Permission
		}
		steps := make([]step, rapid.IntRange(1, 6).Draw(rt, "steps"))
		for i := range steps {
			steps[i] = step{
				rapid.IntRange(0, 40).Draw(rt, "after"), rapid.IntRange(0, 90).Draw(rt, "lasts"),
				rapid.SampledFrom([]policy.Permission{policy.View, policy.Read, policy.Write}).Draw(rt, "permission"),
			}
		}
		synctest.Test(t, func(t *testing.T) {
			s := &supervisor{log: slog.New(slog.DiscardHandler)}
			var paths granted.Paths
			rules := []policy.Rule{{Pattern: "/f", Permission: policy.View}}
			var set func()
			set = func() {
				end, ends := paths.NextGrantEnd()
				s.grants.setLocked(end, ends, func() {
					s.endGrants(&s.grants, paths.NextGrantEnd, set, func() error {
						rules = paths.DropEndedGrants(rules, time.Now())
						set()
						return nil
					})
				})
			}
			defer s.grants.stop()
			ends := map[policy.Permission]time.Time{}
			noEnd := time.Now().Add(time.Hour)
			for _, next := range steps {
				checkEachSecond(t, s, &rules, ends, next.after)
				s.grants.mu.Lock()
				changed, err := paths.ChangeGrants(granted.Change{Path: "/f", Permission: next.permission, For: time.Duration(next.lasts) * time.Second}, rules, "s", time.Now())
				if changed != nil {
					rules = changed
				}
				set()
				s.grants.mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
				end := noEnd
				if next.lasts > 0 {
					end = time.Now().Add(time.Duration(next.lasts) * time.Second)
				}
				if end.After(ends[next.permission]) {
					ends[next.permission] = end
				}
			}
			checkEachSecond(t, s, &rules, ends, 100)
		})
	})
}

// checkEachSecond waits, and compares the permission of /f with the strongest one that has not
// ended.
func checkEachSecond(t *testing.T, s *supervisor, rules *[]policy.Rule, ends map[policy.Permission]time.Time, seconds int) {
	for range seconds {
		time.Sleep(time.Second)
		synctest.Wait()
		want := policy.View
		for p, end := range ends {
			if time.Now().Before(end) {
				want = max(want, p)
			}
		}
		s.grants.mu.Lock()
		p, err := policy.Compile(*rules, policy.Options{})
		s.grants.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Decide("/f").Permission; got != want {
			t.Fatalf("at %s: %s, want %s", time.Now().Format(time.TimeOnly), got, want)
		}
	}
}

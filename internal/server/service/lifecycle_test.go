package service

import (
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// Those that wait do not keep the others waiting.
func TestSandboxesAreRecoveredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make([]int, 10*recoverAtOnce+1)
		for i := range all {
			all[i] = i
		}
		var mu sync.Mutex
		now, most, seen := 0, 0, map[int]int{}
		began := time.Now()
		inParallel(all, func(i int) {
			mu.Lock()
			now++
			most = max(most, now)
			seen[i]++
			mu.Unlock()
			time.Sleep(time.Second) // of the bubble's clock: a supervisor that is slow to answer
			mu.Lock()
			now--
			mu.Unlock()
		})
		if most != recoverAtOnce || now != 0 || len(seen) != len(all) {
			t.Errorf("%d of %d were done, %d at once, and %d go on; want all, %d at once", len(seen), len(all), most, now, recoverAtOnce)
		}
		if took, want := time.Since(began), 11*time.Second; took != want {
			t.Errorf("it took %s, want %s", took, want)
		}
	})
	inParallel(nil, func(int) { t.Error("something was done with nothing") })
}

// removed is a sandbox that was made and removed, and its log written to for the
// last time at.
func removed(t *testing.T, home *record.Home, name string) (record.ID, func(at time.Time)) {
	t.Helper()
	source, err := home.ResolveSource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rules, err := preset.Rules(preset.Default)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := home.Create(record.Record{
		Name: name, Source: source, Workspace: string(source.Path), Rules: rules, Runtime: record.RuntimeBwrap, Net: "none",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := home.Remove(name); err != nil {
		t.Fatal(err)
	}
	return sb.ID(), func(at time.Time) {
		if err := os.Chtimes(home.AuditPath(sb.ID()), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOldLogsAreLookedForAtTheStartAndEachHour(t *testing.T) {
	home, err := record.OpenHomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	old, ageOld := removed(t, home, "old")
	young, ageYoung := removed(t, home, "young")
	synctest.Test(t, func(t *testing.T) {
		c := config.Default()
		c.Audit.Retention, c.Sandbox.CleanupInterval = 24*time.Hour, time.Minute
		ageOld(time.Now().Add(-25 * time.Hour))
		ageYoung(time.Now().Add(-24*time.Hour + 30*time.Minute)) // old enough in half an hour
		s := New(Options{Config: c, Home: home, Log: slog.New(slog.DiscardHandler)})
		s.background.Go(s.cleanUp)
		defer s.background.Wait()
		defer s.stop()
		look := func(after time.Duration, wantOld, wantYoung bool) {
			t.Helper()
			time.Sleep(after) // of the bubble's clock
			synctest.Wait()
			if home.Knew(old) != wantOld || home.Knew(young) != wantYoung {
				t.Errorf("logs are there: old %t, young %t; want %t, %t", home.Knew(old), home.Knew(young), wantOld, wantYoung)
			}
		}
		look(0, false, true)
		look(59*time.Minute+time.Second, false, true)
		look(time.Minute, false, false)
	})
}

package testenv

import (
	"testing"
	"time"
)

// patience bounds the wait for what must come. Only a failure waits so long: a busy machine may
// take its time.
const patience = time.Minute

// Eventually waits until is answers true, and fails the test if it does not.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %s: %s", patience, what)
		}
	}
}

package launch

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Lines that somebody causes without end do not fill the disk, and each start has
// room for its own.
func TestTheLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "supervisor.log")
	for start := range 4 {
		f, err := OpenLogFile(path)
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.NewJSONHandler(&BoundedLog{To: f, Left: MaxLogBytes}, nil))
		log.Info("started", "number", start)
		for range 2 * MaxLogBytes / 200 {
			log.Warn(strings.Repeat("x", 200))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 2*MaxLogBytes {
			t.Errorf("start %d: the log has %d bytes", start, len(text))
		}
		if !strings.Contains(string(text), `"number":`+string(rune('0'+start))) || !strings.HasSuffix(string(text), logIsFull) {
			t.Errorf("start %d: the log ends with %.200s", start, text[max(0, len(text)-200):])
		}
	}
}

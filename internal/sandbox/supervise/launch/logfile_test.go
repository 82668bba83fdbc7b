package launch

import (
	"bytes"
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

func TestABoundedLogTakesNoMoreWhateverItsLinesAre(t *testing.T) {
	const most = 1000
	for size := 1; size <= most; size++ {
		var text bytes.Buffer
		log := BoundedLog{To: &text, Left: most}
		line := bytes.Repeat([]byte("x"), size)
		for range most {
			if n, err := log.Write(line); n != size || err != nil {
				t.Fatal(n, err)
			}
		}
		if text.Len() > most || !strings.HasSuffix(text.String(), logIsFull) {
			t.Errorf("lines of %d bytes: the log has %d bytes, and ends with %.200s", size, text.Len(), text.Bytes()[max(0, text.Len()-200):])
		}
	}
}

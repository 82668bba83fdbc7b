package cli

import (
	"testing"
)

func TestModesAreResetAndSetAgain(t *testing.T) {
	for _, tt := range []struct {
		name, written, reset, again string
		full                        bool
	}{
		{name: "a program that sets none", written: "text \x1b[31mred\x1b[0m \x1b[2J"},
		{name: "what is usual again", written: "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l"},
		{name: "several in one sequence, cut in pieces", written: "\x1b[?1000;10|06h", reset: "\x1b[?1000l\x1b[?1006l", again: "\x1b[?1000h\x1b[?1006h"},
		{name: "a full screen without a cursor", written: "\x1b[?1049h\x1b|[?25l", reset: "\x1b[?1049l\x1b[?25h", again: "\x1b[?1049h\x1b[?25l", full: true},
		{name: "what only looks so", written: "\x1b[?10x49h\x1b[1049h[?1049h\x1b?1049h\x1b[>4h"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m modeTracker
			for _, part := range splitParts(tt.written) {
				m.see([]byte(part))
			}
			if got := m.sequences(false); got != tt.reset {
				t.Errorf("reset: %q, want %q", got, tt.reset)
			}
			if got := m.sequences(true); got != tt.again {
				t.Errorf("again: %q, want %q", got, tt.again)
			}
			if m.isFull() != tt.full {
				t.Errorf("full: %v", m.isFull())
			}
		})
	}
}

// TestModesAreBounded: a program makes no memory grow by inventing modes.
func TestModesAreBounded(t *testing.T) {
	var m modeTracker
	for i := range 100_000 {
		m.see([]byte("\x1b[?1" + string(rune('0'+i%10)) + string(rune('0'+i/10%10)) + string(rune('0'+i/100%10)) + "h"))
	}
	m.see(append([]byte("\x1b[?"), make([]byte, 1<<20)...))
	if len(m.isOn) > maxModes || cap(m.partial) > 4*maxMode {
		t.Errorf("%d modes, %d bytes", len(m.isOn), cap(m.partial))
	}
}

func splitParts(text string) (parts []string) {
	start := 0
	for i := range text {
		if text[i] == '|' {
			parts, start = append(parts, text[start:i]), i+1
		}
	}
	return append(parts, text[start:])
}

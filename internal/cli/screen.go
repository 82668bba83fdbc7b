package cli

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// screen is the terminal of a command, on which we may have to ask something. It passes on what
// the command writes, and remembers the modes that it has set, so that they can be reset for a
// question and set again after it.
type screen struct {
	mu    sync.Mutex // held while a question is on the terminal
	modes modeTracker
	wrote time.Time // when the command's output came last
}

// What the command wrote before it asks may still be on its way. A question waits until nothing
// has come for settleTime, and settleMost at most.
const (
	settleTime = 50 * time.Millisecond
	settleMost = 500 * time.Millisecond
)

// settle returns with the lock.
func (s *screen) settle() {
	for end := time.Now().Add(settleMost); ; time.Sleep(settleTime) {
		s.mu.Lock()
		if now := time.Now(); now.After(end) || now.Sub(s.wrote) >= settleTime {
			return
		}
		s.mu.Unlock()
	}
}

// writer returns to, as what the command writes reaches it.
func (s *screen) writer(to io.Writer) io.Writer { return screenWriter{s, to} }

type screenWriter struct {
	screen *screen
	to     io.Writer
}

// Write waits while a question is on the terminal.
func (w screenWriter) Write(p []byte) (int, error) {
	w.screen.mu.Lock()
	defer w.screen.mu.Unlock()
	w.screen.modes.see(p)
	w.screen.wrote = time.Now()
	return w.to.Write(p)
}

const esc = "\x1b"

// calm ends a control string that the command has begun, and resets what would hide a question or
// change what is typed: the scroll region and character sets, keypad and keyboard modes.
const calm = "\x18" + esc + "\\" + esc + "[!p" + esc + "(B\x0f" + esc + "[0m" + esc + ">" + esc + "[<9u" + esc + "[>4;0m"

// The private modes (DECSET) that have a meaning here.
const (
	modeCursor = "25" // on unless it is reset
	modeWrap   = "7"  // on unless it is reset
)

// altScreens are the modes in which a program fills a screen of its own.
var altScreens = []string{"47", "1047", "1049"}

// maxModes bounds the modes that are remembered, and maxMode the length of a sequence.
const (
	maxModes = 64
	maxMode  = 64
)

// modeTracker finds CSI ? … h and CSI ? … l in what a program writes. Its zero value knows the
// usual modes.
type modeTracker struct {
	isOn    map[string]bool
	partial []byte // of a sequence that has begun
}

func (t *modeTracker) see(p []byte) {
	for _, c := range p {
		switch n := len(t.partial); {
		case c == esc[0]:
			t.partial = append(t.partial[:0], c)
		case n == 0:
		case n == 1 && c == '[', n == 2 && c == '?', n > 2 && n < maxMode && (c >= '0' && c <= '9' || c == ';'):
			t.partial = append(t.partial, c)
		case n > 2 && (c == 'h' || c == 'l'):
			t.set(t.partial[3:], c == 'h')
			t.partial = t.partial[:0]
		default:
			t.partial = t.partial[:0]
		}
	}
}

func (t *modeTracker) set(list []byte, on bool) {
	if t.isOn == nil {
		t.isOn = map[string]bool{}
	}
	for mode := range bytes.SplitSeq(list, []byte{';'}) {
		if _, known := t.isOn[string(mode)]; known || len(t.isOn) < maxModes {
			t.isOn[string(mode)] = on
		}
	}
}

// isFull reports whether the program fills a screen of its own.
func (t *modeTracker) isFull() bool {
	return slices.ContainsFunc(altScreens, func(mode string) bool { return t.isOn[mode] })
}

// usual is what a mode is set to in a terminal that no program has changed.
func usual(mode string) bool { return mode == modeCursor || mode == modeWrap }

// sequences returns what sets each mode that is unusual to what it is (restore), or to what is
// usual.
func (t *modeTracker) sequences(restore bool) string {
	var text strings.Builder
	for _, mode := range slices.Sorted(maps.Keys(t.isOn)) {
		on := t.isOn[mode]
		if on == usual(mode) {
			continue
		}
		final := "l"
		if on == restore {
			final = "h"
		}
		text.WriteString(esc + "[?" + mode + final)
	}
	return text.String()
}

package mcpserver

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// However an output is written, its beginning and its end are kept, and the rest is counted.
func TestOutputKeepsBothEnds(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		all := make([]byte, random.IntN(300))
		for i := range all {
			all[i] = 'a' + byte(random.IntN(26))
		}
		o := output{most: int64(2 * (1 + random.IntN(50))), meter: &meter{note: func(int64) {}}}
		for rest := all; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			if written, err := o.Write(rest[:n]); written != n || err != nil {
				t.Fatal(written, err)
			}
			rest = rest[n:]
		}
		if len(all) <= int(o.most) {
			if o.text() != string(all) {
				t.Fatalf("seed %d: of %q is kept %q", seed, all, o.text())
			}
			continue
		}
		half := int(o.most / 2)
		begin, rest, _ := strings.Cut(o.text(), "\n[… ")
		_, end, _ := strings.Cut(rest, " left out …]\n")
		if begin != string(all[:half]) || end != string(all[len(all)-half:]) || o.omitted() != int64(len(all)-2*half) {
			t.Fatalf("seed %d: of %q is kept %q", seed, all, o.text())
		}
		if cap(o.tail) > 8*half+300 {
			t.Fatalf("the end takes %d bytes", cap(o.tail))
		}
	}
}

// The parts of a file that are read one after another are the file, and no character is cut.
func TestPartsAreTheFile(t *testing.T) {
	file := strings.Repeat("aé€😀\n", 20)
	for most := int64(4); most < 40; most++ {
		var all strings.Builder
		for offset, more := int64(0), true; more; {
			p := part{skip: offset, room: most}
			var err error
			for chunk := range bytes.SplitAfterSeq([]byte(file), []byte("\n")) {
				if _, err = p.Write(chunk); err != nil {
					break
				}
			}
			more = errors.Is(err, errFull)
			texts := p.result(offset, more).Content
			text := texts[0].(*mcp.TextContent).Text
			if strings.Contains(text, "\ufffd") || more != (len(texts) == 2) {
				t.Fatalf("%d bytes from %d: %q", most, offset, texts)
			}
			all.WriteString(text)
			offset += int64(len(text))
		}
		if all.String() != file {
			t.Fatalf("parts of %d bytes: %q", most, all.String())
		}
	}
}

func TestPathsAreThoseOfTheView(t *testing.T) {
	s := &service{o: Options{Workspace: "/home/me/project"}}
	for text, want := range map[string]string{
		".": "/", "a/b": "/a/b", "/home/me/project": "/", "/home/me/project/": "/", "/home/me/project/a": "/a", "/home/me/project/../project/a": "/a",
	} {
		if got, err := s.path(text); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "..", "a/../..", "/", "/home/me", "/home/me/project-other/a", "/home/me/project/../other", "/etc/passwd", "a\x00"} {
		if got, err := s.path(text); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %q, %v, want Invalid", text, got, err)
		}
	}
}

// A client that wants to know is notified of the first output at once, then each second, and not
// after the end.
func TestProgressTellsFromTimeToTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &progress{output: make(chan int64, 1), over: make(chan struct{}), done: make(chan struct{})}
		var told []int64
		go func() {
			defer close(p.done)
			p.notify(func(_ time.Duration, total int64) error {
				told = append(told, total)
				return nil
			})
		}()
		p.note(1)
		synctest.Wait()
		p.note(2)
		p.note(3)
		synctest.Wait()
		time.Sleep(2*progressPause + progressPause/2)
		p.end()
		p.note(4)
		if len(told) != 3 || told[0] != 1 || told[1] != 3 || told[2] != 3 {
			t.Errorf("told %d", told)
		}
	})
}

func TestLoopbackNames(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:80": true, "[::1]:80": true, "localhost:80": true, "127.0.0.1": true, "evil.example": false, "127.0.0.1.evil.example:80": false, "0.0.0.0:80": false, "": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
}

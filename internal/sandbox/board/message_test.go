package board

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// newBoard returns a board in a new state directory.
func newBoard(t *testing.T) *Board {
	t.Helper()
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	return Of(home, record.Source{Path: "/source", Ino: 1}, "")
}

// member is a sandbox whose supervisor is this process.
func member(t *testing.T, b *Board, name string) Holder {
	t.Helper()
	source, err := b.home.ResolveSource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sb, err := b.home.Create(record.Record{Source: source, Name: name, Workspace: "/workspace", Runtime: record.RuntimeBwrap, Net: record.NetNone})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := sb.TryLock(record.PurposeSupervise)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lock.Release)
	h := Holder{ID: sb.ID(), Name: name, PID: os.Getpid()}
	if err := b.Join(h); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestMessagesAgainstAModel posts messages of several sandboxes, some of which are killed while
// they write, and reads them. Numbers rise by one, a message that was posted is there until the
// bounds take it, the oldest first, and no sandbox takes the room of the others.
func TestMessagesAgainstAModel(t *testing.T) {
	before := kept
	kept = bounds{fileBytes: 8 << 10, bytes: 4 << 10, messages: 30, ofSandbox: 12, sandboxCut: 2 << 10, topics: 4, age: time.Hour}
	t.Cleanup(func() { kept = before })
	rapid.Check(t, func(rt *rapid.T) {
		b := newBoard(t)
		var all []Message // of the model
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			who := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "who")
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0: // a supervisor is killed while it writes
				crash(rt, b, rapid.SampledFrom([]string{`{"seq":9`, "{", `{"seq":77,"text":"`}).Draw(rt, "torn"))
			case 1:
				checkPages(rt, b, all, uint64(rapid.IntRange(0, len(all)+3).Draw(rt, "after")))
			default:
				d := Draft{By: ByAgent, Topic: rapid.SampledFrom([]string{"general", "plan", "x", "y", "z", "status"}).Draw(rt, "topic"), Text: strings.Repeat("t", rapid.IntRange(1, 600).Draw(rt, "bytes"))}
				m, err := b.Post(Holder{Name: who, ID: record.ID("sb_" + who)}, d)
				if err != nil {
					rt.Fatal(err)
				}
				if m.Seq != uint64(len(all)+1) || m.Sandbox != who || m.Text != d.Text {
					rt.Fatalf("message %+v, want number %d", m, len(all)+1)
				}
				all = append(all, m)
			}
			info, err := os.Stat(filepath.Join(b.dir, messagesFile))
			if err == nil && info.Size() > int64(kept.fileBytes)+64 {
				rt.Fatalf("the file has %d bytes", info.Size())
			}
		}
		checkPages(rt, b, all, 0)
	})
}

func crash(t *rapid.T, b *Board, torn string) {
	f, err := os.OpenFile(filepath.Join(b.dir, messagesFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return // there is no message yet
	}
	defer f.Close()
	if _, err := f.WriteString(torn); err != nil {
		t.Fatal(err)
	}
}

// checkPages reads all messages behind a number, a few at a time.
func checkPages(t *rapid.T, b *Board, all []Message, after uint64) {
	var got []Message
	q := Query{After: after, Limit: 3}
	lost := uint64(0)
	for first := true; ; first = false {
		p, err := b.Read(q)
		if err != nil {
			t.Fatal(err)
		}
		if first {
			lost = p.Lost
		}
		got = append(got, p.Messages...)
		if len(p.Messages) < 3 {
			break
		}
		q.After = p.Next
	}
	want := all
	if after <= uint64(len(all)) {
		want = all[after:]
	}
	if after > 0 && after <= uint64(len(all)) && lost != uint64(len(want)-len(got)) {
		t.Fatalf("lost %d, got %d of %d", lost, len(got), len(want))
	}
	// What is left is a part of it in order, and the newest message is always there.
	i := 0
	for _, m := range got {
		for i < len(want) && want[i].Seq != m.Seq {
			i++
		}
		if i == len(want) || cmp.Diff(want[i], m) != "" {
			t.Fatalf("message %+v is not one that was posted, or is not in order", m)
		}
	}
	if len(want) > 0 && (len(got) == 0 || got[len(got)-1].Seq != want[len(want)-1].Seq) {
		t.Fatalf("the newest message %d is missing", want[len(want)-1].Seq)
	}
}

// TestTheOldestGoFirst checks the bounds themselves.
func TestTheOldestGoFirst(t *testing.T) {
	k := bounds{bytes: 1000, messages: 10, ofSandbox: 4, sandboxCut: 400, topics: 3, age: time.Hour}
	now := time.Unix(1_000_000, 0)
	list := func(n int, of func(i int, m *stored)) []stored {
		var all []stored
		for i := range n {
			m := stored{Message{Seq: uint64(i + 1), ID: record.ID(fmt.Sprint("sb_", i)), Topic: "t", Time: now}, make([]byte, 10)}
			of(i, &m)
			all = append(all, m)
		}
		return all
	}
	for name, test := range map[string]struct {
		all  []stored
		want []uint64
	}{
		"messages":               {list(12, func(int, *stored) {}), []uint64{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		"bytes":                  {list(5, func(_ int, m *stored) { m.line = make([]byte, 390) }), []uint64{4, 5}},
		"one sandbox":            {list(6, func(i int, m *stored) { m.ID = record.ID(fmt.Sprint(min(i, 1))) }), []uint64{1, 3, 4, 5, 6}},
		"bytes of one sandbox":   {list(5, func(_ int, m *stored) { m.ID, m.line = "a", make([]byte, 190) }), []uint64{4, 5}},
		"topics":                 {list(5, func(i int, m *stored) { m.Topic = fmt.Sprint(i) }), []uint64{3, 4, 5}},
		"age":                    {list(3, func(i int, m *stored) { m.Time = now.Add(time.Duration(i-2) * 40 * time.Minute) }), []uint64{2, 3}},
		"the newest always stay": {list(1, func(_ int, m *stored) { m.line, m.Time = make([]byte, 5000), now.Add(-2*time.Hour) }), []uint64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []uint64
			for _, m := range k.trim(test.all, now) {
				got = append(got, m.Seq)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

// TestDraftsAreBounded checks what cannot be posted.
func TestDraftsAreBounded(t *testing.T) {
	b := newBoard(t)
	for name, d := range map[string]Draft{
		"no text": {Text: " \n"}, "no UTF-8": {Text: "a\xff"}, "a topic of another kind": {Topic: "A b", Text: "x"},
		"a topic that is a path": {Topic: "../x", Text: "x"}, "a long topic": {Topic: strings.Repeat("x", 65), Text: "x"},
	} {
		if _, err := b.Post(Holder{Name: "a"}, d); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.Post(Holder{Name: "a"}, Draft{Text: strings.Repeat("x", MaxText+1)}); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("a long text: %v", err)
	}
	if _, err := b.Post(Holder{Name: "a"}, Draft{Text: strings.Repeat("\x01", MaxText)}); err != nil {
		t.Errorf("a text that is escaped: %v", err)
	}
}

// TestAReaderIsWoken checks that Wait returns with the message, also if the board is made later,
// and that many writers get different numbers.
func TestAReaderIsWoken(t *testing.T) {
	b := newBoard(t)
	const writers, each = 4, 25
	got := make(chan Message, writers*each)
	go func() {
		defer close(got)
		for q := (Query{}); q.After < writers*each; {
			p, err := b.Wait(t.Context(), q, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			for _, m := range p.Messages {
				got <- m
			}
			q.After = p.Next
		}
	}()
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for range each {
				if _, err := b.Post(Holder{Name: fmt.Sprint(i), ID: record.ID(fmt.Sprint(i))}, Draft{Text: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	next := uint64(1)
	for m := range got {
		if m.Seq != next {
			t.Fatalf("message %d, want %d", m.Seq, next)
		}
		next++
	}
	if p, err := b.Wait(t.Context(), Query{After: writers * each}, time.Millisecond); err != nil || len(p.Messages) > 0 {
		t.Errorf("without a message: %v, %v", p, err)
	}
}

// TestAnUnusedBoardIsRemoved checks that the directory goes with the last member, but not with
// messages, and that a board that is made at the same time is whole.
func TestAnUnusedBoardIsRemoved(t *testing.T) {
	b := newBoard(t)
	h, other := member(t, b, "a"), member(t, b, "b")
	exists := func(want bool) {
		t.Helper()
		if _, err := os.Stat(b.dir); (err == nil) != want {
			t.Errorf("the board: %v, want it to be there: %t", err, want)
		}
	}
	leave := func(h Holder) {
		t.Helper()
		if _, err := b.Leave(h); err != nil {
			t.Error(err)
		}
	}
	leave(h)
	exists(true)
	leave(other)
	exists(false)

	if _, err := b.Post(h, Draft{Text: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Join(h); err != nil {
		t.Fatal(err)
	}
	leave(h)
	exists(true)
	past := time.Now().Add(-2 * kept.age)
	old := Message{Seq: 7, Time: past, Text: "x", Topic: "t"}
	if err := b.locked(func() error {
		return b.replace(messagesFile, fmt.Appendf(nil, `{"seq":%d,"time":%q,"text":"x"}`+"\n", old.Seq, past.Format(time.RFC3339)))
	}); err != nil {
		t.Fatal(err)
	}
	if p, err := b.Read(Query{}); err != nil || len(p.Messages) > 0 {
		t.Errorf("an old message is shown: %v, %v", p, err)
	}
	if err := os.Chtimes(filepath.Join(b.dir, messagesFile), past, past); err != nil {
		t.Fatal(err)
	}
	another := Of(b.home, record.Source{Path: "/another", Ino: 2}, "")
	if err := another.Join(other); err != nil {
		t.Fatal(err)
	}
	if _, err := another.Leave(other); err != nil {
		t.Fatal(err)
	}
	exists(false)

	// Some come while others leave: no step fails.
	var all sync.WaitGroup
	for i := range 4 {
		x := Holder{Name: fmt.Sprint("x", i), PID: i}
		all.Go(func() {
			for range 50 {
				if err := b.Join(x); err != nil {
					t.Error(err)
				}
				if _, err := b.Update(nil, func(*Table) error { return nil }); err != nil {
					t.Error(err)
				}
				if _, err := b.Leave(x); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	exists(false)
}

// TestAStatusLastsAsLongAsItsRun checks who is listed as working on what.
func TestAStatusLastsAsLongAsItsRun(t *testing.T) {
	b := newBoard(t)
	h := member(t, b, "a")
	status := func() string {
		t.Helper()
		s, err := b.State()
		if err != nil || len(s.Members) != 1 || s.Members[0].ID != h.ID {
			t.Fatalf("members: %v, %v", s.Members, err)
		}
		if m := s.Members[0].Status; m != nil {
			return m.Text
		}
		return ""
	}
	if got := status(); got != "" {
		t.Errorf("status %q before it posted one", got)
	}
	for _, text := range []string{"one", "two"} {
		if _, err := b.Post(h, Draft{By: ByUser, Topic: StatusTopic, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Post(h, Draft{Text: "elsewhere"}); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != "two" {
		t.Errorf("status %q", got)
	}
	if err := b.Join(h); err != nil { // it is started again
		t.Fatal(err)
	}
	if got := status(); got != "" {
		t.Errorf("status %q of an earlier run", got)
	}
	topics, err := b.Topics()
	if err != nil || len(topics) != 2 || topics[0].Name != DefaultTopic || topics[1].Messages != 2 || topics[1].Last.Text != "two" {
		t.Errorf("topics: %+v, %v", topics, err)
	}
}

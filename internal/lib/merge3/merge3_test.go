package merge3_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/merge3"
)

func TestLines(t *testing.T) {
	tests := []struct{ name, base, ours, theirs, want string }{
		{"changes of different lines are merged", "a\nb\nc\nd\n", "A\nb\nc\nd\n", "a\nb\nc\nD\n", "A\nb\nc\nD\n"},
		{"the same change is no conflict", "a\nb\n", "A\nb\n", "A\nb\n", "A\nb\n"},
		{"the same change beside another one is no conflict", "a\nb\nc\n", "A\nb\nc\n", "A\nb\nC\n", "A\nb\nC\n"},
		{
			"changes that touch each other are a conflict", "a\nb\n", "A\nb\n", "a\nB\n",
			"<<<<<<< source\nA\nb\n=======\na\nB\n>>>>>>> sandbox\n",
		},
		{
			"equal lines at the ends of a conflict are no part of it", "a\n", "x\nA\ny\n", "x\nB\ny\n",
			"x\n<<<<<<< source\nA\n=======\nB\n>>>>>>> sandbox\ny\n",
		},
		{
			"without a base, both versions are a conflict", "", "a\n", "b\n",
			"<<<<<<< source\na\n=======\nb\n>>>>>>> sandbox\n",
		},
		{"a removed final newline is a change of the last line", "a\nb\nc\n", "A\nb\nc\n", "a\nb\nc", "A\nb\nc"},
		{
			"a version without a final newline gets one before a marker", "a\n", "b", "c",
			"<<<<<<< source\nb\n=======\nc\n>>>>>>> sandbox\n",
		},
		{
			"markers end as the lines around them", "a\r\n", "b\r\n", "c\r\n",
			"<<<<<<< source\r\nb\r\n=======\r\nc\r\n>>>>>>> sandbox\r\n",
		},
		{"line ends are content", "a\nb\n", "a\r\nb\n", "a\nb\nc\n", "a\r\nb\nc\n"},
		{"one version deleted all", "a\nb\n", "", "a\nB\n", "<<<<<<< source\n=======\na\nB\n>>>>>>> sandbox\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := lines(t, []byte(tt.base), []byte(tt.ours), []byte(tt.theirs))
			if got := string(r.Markers("source", "sandbox")); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if conflict := strings.Contains(tt.want, "<<<"); r.Clean == conflict || r.Clean != (len(r.Conflicts) == 0) {
				t.Errorf("Clean is %v with %d conflicts", r.Clean, len(r.Conflicts))
			}
		})
	}
}

func TestConflictsHaveTheirPlaces(t *testing.T) {
	r := lines(t, []byte("a\nb\n1\n2\n3\n4\nc\n"), []byte("a\nx\ny\n1\n2\n3\n4\nC\n"), []byte("a\n1\n2\n3\n4\nD\n"))
	want := []merge3.Conflict{
		{Ours: merge3.Span{Start: 1, End: 3}, Theirs: merge3.Span{Start: 1, End: 1}},
		{Ours: merge3.Span{Start: 7, End: 8}, Theirs: merge3.Span{Start: 5, End: 6}},
	}
	if diff := cmp.Diff(want, r.Conflicts); diff != "" {
		t.Error(diff)
	}
	if got, want := string(r.Ours()), "a\nx\ny\n1\n2\n3\n4\nC\n"; got != want {
		t.Errorf("ours: %q, want %q", got, want)
	}
	if got, want := string(r.Theirs()), "a\n1\n2\n3\n4\nD\n"; got != want {
		t.Errorf("theirs: %q, want %q", got, want)
	}
}

func TestBinaryAndLargeVersionsAreRefused(t *testing.T) {
	large := bytes.Repeat([]byte("a"), merge3.MaxBytes+1)
	tests := []struct {
		name               string
		base, ours, theirs []byte
		want               merge3.Refusal
	}{
		{"a binary base", []byte("\x00"), []byte("a"), []byte("b"), merge3.Binary},
		{"a binary version", []byte("a"), []byte("b"), []byte("\x00"), merge3.Binary},
		{"a large version", []byte("a"), large, []byte("b"), merge3.TooLarge},
		{"a binary that one side changed", []byte("a\x00"), []byte("b\x00"), []byte("a\x00"), ""},
		{"a binary with the same change", []byte("a\x00"), []byte("b\x00"), []byte("b\x00"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := lines(t, tt.base, tt.ours, tt.theirs)
			if r.Refused != tt.want || r.Clean != (tt.want == "") {
				t.Fatalf("Refused %q, Clean %v, want %q", r.Refused, r.Clean, tt.want)
			}
			if r.Clean && !bytes.Equal(r.Text, tt.ours) {
				t.Errorf("the text is %q", r.Text)
			}
			if tt.want != "" && (r.Markers("a", "b") != nil || !bytes.Equal(r.Ours(), tt.ours) || !bytes.Equal(r.Theirs(), tt.theirs)) {
				t.Error("a refused merge has text")
			}
		})
	}
}

// scrambled returns n lines of few kinds in an order that has no structure.
func scrambled(seed uint64, n, kinds int) []byte {
	r := rand.New(rand.NewPCG(seed, seed))
	var b strings.Builder
	for range n {
		b.WriteByte(byte('a' + r.IntN(kinds)))
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

func TestTextsWithoutStructureAreMergedInBoundedTime(t *testing.T) {
	for name, kinds := range map[string]int{"two kinds of lines": 2, "26 kinds of lines": 26} {
		t.Run(name, func(t *testing.T) {
			const many = 80_000
			r := lines(t, scrambled(1, many, kinds), scrambled(2, many, kinds), scrambled(3, many, kinds))
			if r.Clean {
				t.Error("texts without anything in common merge without a conflict")
			}
		})
	}
}

func TestManyDifferencesMergeAsInGit(t *testing.T) {
	g := newGit(t)
	for seed := range uint64(5) {
		g.compare(t, scrambled(seed, 3000, 20), scrambled(seed+100, 3000, 20), scrambled(seed+200, 3000, 20))
	}
}

// A text with so many lines that git cuts a search short where a way is promising.
func TestLargeTextsMergeAsInGit(t *testing.T) {
	g := newGit(t)
	base := scrambled(1, 100_000, 26)
	g.compare(t, base, stirred(2, base), stirred(3, base))
}

// stirred is a text with a change every few lines.
func stirred(seed uint64, text []byte) []byte {
	r := rand.New(rand.NewPCG(seed, seed))
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		switch r.IntN(16) {
		case 0:
			continue
		case 1:
			b.WriteString("new\n")
		}
		b.Write(line)
	}
	return b.Bytes()
}

// A merge that needs more steps than it may take ends nevertheless, and loses nothing that only one
// version changed.
func TestAMergeBeyondItsBudgetIsRoughAndRight(t *testing.T) {
	base := scrambled(1, 600_000, 2)
	ours := append([]byte("only ours\n"), scrambled(2, 600_000, 2)...)
	r := lines(t, base, ours, append(bytes.Clone(base), "only theirs\n"...))
	if !r.Rough {
		t.Error("the versions were compared thoroughly")
	}
	if got := r.Theirs(); !bytes.HasPrefix(got, []byte("only ours\n")) || !bytes.HasSuffix(got, []byte("only theirs\n")) {
		t.Error("a change is lost")
	}
	if got, want := r.Ours(), append(bytes.Clone(ours), "only theirs\n"...); r.Clean && !bytes.Equal(got, want) {
		t.Error("the merge is wrong")
	}
}

func TestAMergeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := merge3.Lines(ctx, scrambled(1, 3000, 2), scrambled(2, 3000, 2), scrambled(3, 3000, 2))
	if !errors.Is(err, context.Canceled) || r.Clean || r.Text != nil {
		t.Errorf("got %+v, %v", r, err)
	}
}

// FuzzLines checks what must hold of a merge of any content.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nB\nc\n"), []byte("a\nb\nC"))
	f.Add([]byte(""), []byte("\r\n"), []byte("\n\n}"))
	f.Fuzz(func(t *testing.T, base, ours, theirs []byte) {
		r := lines(t, base, ours, theirs)
		mirrored := lines(t, base, theirs, ours)
		switch {
		case r.Refused != mirrored.Refused:
			t.Fatalf("refused: %q one way, %q the other", r.Refused, mirrored.Refused)
		case r.Refused != "":
			return
		case r.Clean != mirrored.Clean:
			t.Fatalf("clean: %v one way, %v the other", r.Clean, mirrored.Clean)
		case r.Clean && !bytes.Equal(r.Text, mirrored.Text):
			t.Fatalf("merges to %q one way, %q the other", r.Text, mirrored.Text)
		}
		if r = lines(t, base, base, theirs); !r.Clean || !bytes.Equal(r.Text, theirs) {
			t.Fatal("an unchanged version changes the other one")
		}
		if r = lines(t, base, ours, ours); !r.Clean || !bytes.Equal(r.Text, ours) {
			t.Fatal("equal versions change each other")
		}
	})
}

// lines is Lines without an end.
func lines(t interface{ Fatal(...any) }, base, ours, theirs []byte) merge3.Result {
	r, err := merge3.Lines(context.Background(), base, ours, theirs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Package pick asks a person hunk by hunk which changes of a sandbox to apply, as `git add -p`
// does. It reads answers from a terminal and writes to it; names and contents are escaped. It
// returns the ids of what was chosen, and applies nothing.
package pick

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// Options say how to ask.
type Options struct {
	In     io.Reader
	Out    io.Writer
	Colour bool
}

// Ask shows the changes and returns the ids of those that the person chose, until the person has
// decided on all, or quits. Errors: those of the review, of In and of Out.
func Ask(r *review.Review, o Options) (ids []string, err error) {
	a := &asker{review: r, in: bufio.NewReader(o.In), out: present.NewPieces(o.Out, r, o.Colour)}
	a.items = a.itemsOf(r.Files(), r.Groups())
	if err := a.run(); err != nil {
		return nil, err
	}
	for _, it := range a.items {
		for _, q := range it.questions {
			if q.answer == yes {
				ids = append(ids, q.ids...)
			}
		}
	}
	return ids, nil
}

type answer int

const (
	undecided answer = iota
	yes
	no
)

// question is about something that can be applied by itself.
type question struct {
	text   string // "Apply this hunk"
	show   func() error
	names  bool        // show writes the names of the item itself
	pieces []hunk.Hunk // what it can be split into
	ids    []string
	answer answer
}

// item is what is asked about after one head: a file, a group, or a git directory.
type item struct {
	head      func()
	names     func()                      // nil if each question shows them
	load      func() ([]*question, error) // nil when it is loaded
	questions []*question
}

type asker struct {
	review *review.Review
	items  []*item
	in     *bufio.Reader
	out    *present.Pieces
	headed *item     // the item with the head that was written last
	shown  *question // the question that was shown last
}

// place is where a question is.
type place struct{ item, question int }

var start = place{0, -1}

func (a *asker) question(at place) *question { return a.items[at.item].questions[at.question] }

// run asks until nothing is undecided.
func (a *asker) run() error {
	at, found, err := a.next(start)
	for err == nil && found {
		var to move
		if to, err = a.put(at); err != nil || to == quit {
			return err
		}
		at, found, err = a.follow(at, to)
	}
	return err
}

// follow finds the question to put next.
func (a *asker) follow(at place, to move) (next place, found bool, err error) {
	switch to {
	case forward:
		if next, found, err = a.next(at); err == nil && !found { // what was left for later
			next, found, err = a.next(start)
		}
		return next, found, err
	case later:
		if next, found, err = a.next(at); found || err != nil {
			return next, found, err
		}
		a.out.Say("no later hunk is undecided")
	case back:
		if next, found = a.previous(at); found {
			return next, true, nil
		}
		a.out.Say("no earlier hunk is undecided")
	}
	return at, true, nil
}

// next finds the first undecided question after a place.
func (a *asker) next(from place) (place, bool, error) {
	for i := from.item; i < len(a.items); i++ {
		it := a.items[i]
		if it.load != nil {
			var err error
			if it.questions, err = it.load(); err != nil {
				return from, false, err
			}
			it.load = nil
		}
		first := 0
		if i == from.item {
			first = from.question + 1
		}
		for q := first; q < len(it.questions); q++ {
			if it.questions[q].answer == undecided {
				return place{i, q}, true, nil
			}
		}
	}
	return from, false, nil
}

// previous finds the last undecided question before a place.
func (a *asker) previous(from place) (place, bool) {
	for i := from.item; i >= 0; i-- {
		for q, question := range slices.Backward(a.items[i].questions) {
			if (i < from.item || q < from.question) && question.answer == undecided {
				return place{i, q}, true
			}
		}
	}
	return from, false
}

// move is where an answer leads.
type move int

const (
	forward move = iota
	stay
	later
	back
	quit
)

// put shows a question and takes an answer to it.
func (a *asker) put(at place) (move, error) {
	it, q := a.items[at.item], a.question(at)
	if err := a.show(it, q); err != nil {
		return quit, err
	}
	keys := a.keys(at)
	if err := a.out.Prompt(fmt.Sprintf("(%d/%d) %s [%s]?", at.question+1, len(it.questions), q.text, strings.Join(keys, ","))); err != nil {
		return quit, err
	}
	line, err := a.in.ReadString('\n')
	if err != nil && line == "" {
		if err == io.EOF {
			return quit, nil
		}
		return quit, err
	}
	key := strings.TrimSpace(line)
	if !slices.Contains(keys, key) {
		switch key {
		case "s":
			a.out.Say("this cannot be split")
		case "e":
			a.out.Say("hunks cannot be edited here; edit the file after the apply, or in the sandbox")
		default:
			a.help(keys)
		}
		return stay, nil
	}
	return a.take(at, key), nil
}

// show shows a question, unless it is the one that was shown last, so that help and messages stay
// on the screen. The first question of an item, and the first one after that of another item, is
// shown with the head and the names of its item.
func (a *asker) show(it *item, q *question) error {
	if a.shown == q {
		return nil
	}
	if a.headed != it {
		it.head()
		if it.names != nil && !q.names {
			it.names()
		}
	}
	a.headed, a.shown = it, q
	return q.show()
}

// keys are the answers that a question may have.
func (a *asker) keys(at place) []string {
	keys := []string{"y", "n", "q", "a", "d", "j", "k"}
	if len(a.question(at).pieces) > 0 {
		keys = append(keys, "s")
	}
	return append(keys, "?")
}

// take takes an answer.
func (a *asker) take(at place, key string) move {
	it, q := a.items[at.item], a.question(at)
	switch key {
	case "y":
		q.answer = yes
	case "n":
		q.answer = no
	case "a", "d":
		decided := yes
		if key == "d" {
			decided = no
		}
		for _, q := range it.questions[at.question:] {
			if q.answer == undecided {
				q.answer = decided
			}
		}
	case "s":
		var pieces []*question
		for _, p := range q.pieces {
			pieces = append(pieces, a.ofHunk(p))
		}
		a.out.Say(fmt.Sprintf("split into %d hunks", len(pieces)))
		it.questions = slices.Replace(it.questions, at.question, at.question+1, pieces...)
		return stay
	case "j":
		return later
	case "k":
		return back
	case "q":
		return quit
	default:
		a.help(a.keys(at))
		return stay
	}
	return forward
}

var helpOf = map[string]string{
	"y": "apply this", "n": "leave this in the sandbox",
	"q": "leave this and everything that is undecided in the sandbox, and apply what was chosen",
	"a": "apply this and all that is undecided after it in the file", "d": "leave this and all that is undecided after it in the file",
	"j": "decide later: go to the next undecided hunk", "k": "decide later: go to the previous undecided hunk",
	"s": "split this hunk into smaller ones", "?": "show this help",
}

func (a *asker) help(keys []string) {
	for _, key := range keys {
		a.out.Say(key + " - " + helpOf[key])
	}
}

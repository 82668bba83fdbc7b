package client

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// ChangeStatus is what became of a path against the source. A rename is a
// deletion and an addition.
type ChangeStatus string

// The change statuses.
const (
	ChangeAdded    ChangeStatus = "added"
	ChangeModified ChangeStatus = "modified"
	ChangeDeleted  ChangeStatus = "deleted"
	ChangeRetyped  ChangeStatus = "retyped" // a file became a link, a directory a file, …
)

// Risk says how a changed file could act outside of the sandbox once it is
// applied.
type Risk string

// The risks, the gravest last.
const (
	RiskNone         Risk = ""
	RiskTrustedLater Risk = "trusted_later" // tools of the host read it and do what it says
	RiskRunsOnHost   Risk = "runs_on_host"  // git, or who starts it by name, runs it
)

// Outcome is what Apply did, or would do, with a path.
type Outcome string

// The outcomes.
const (
	OutcomeApplied  Outcome = "applied"  // the source has it now
	OutcomePresent  Outcome = "present"  // the source had it already
	OutcomeKept     Outcome = "kept"     // not deleted: not the sandbox's to delete
	OutcomeConflict Outcome = "conflict" // the source is not what the sandbox saw
	OutcomeRefused  Outcome = "refused"  // the policy does not let the sandbox write there
	OutcomeFailed   Outcome = "failed"   // the host did not let it
	OutcomeSkipped  Outcome = "skipped"  // not tried, because something stopped the whole
	// OutcomeChangedSinceReview is left out: it is not what ApplyReviewed names.
	OutcomeChangedSinceReview Outcome = "changed_since_review"
	// OutcomeLeftOut is what no apply takes: see FileDiff.LeftOut.
	OutcomeLeftOut Outcome = "left_out"
)

// ChangeKind is what became of a path of a sandbox's view.
type ChangeKind string

// The kinds of changes.
const (
	KindCreated  ChangeKind = "created"
	KindModified ChangeKind = "modified" // its content, or its mode or times
	KindDeleted  ChangeKind = "deleted"
	KindRenamed  ChangeKind = "renamed"
	KindLost     ChangeKind = "lost" // of Watch alone: more changed than could be kept
)

// SessionStatus is where a session stands in its life.
type SessionStatus string

// The states of a session.
const (
	SessionActive SessionStatus = "active"
	SessionClosed SessionStatus = "closed" // its shell has ended
)

// word is a value of an enum of the API: "CHANGE_STATUS_ADDED" is "added", the
// zero value "".
func word(prefix string, value fmt.Stringer) string {
	w := strings.ToLower(strings.TrimPrefix(value.String(), prefix))
	if w == "unspecified" {
		return ""
	}
	return w
}

// knownWord is word, "" for a value of a newer server.
func knownWord(prefix string, value protoreflect.Enum) string {
	known := value.Descriptor().Values().ByNumber(value.Number())
	if known == nil || value.Number() == 0 {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(string(known.Name()), prefix))
}

// value is the reverse of word, with the generated table of an enum's names.
func value[E ~int32](prefix, word string, values map[string]int32) (E, bool) {
	if word == "" {
		return 0, true
	}
	n, known := values[prefix+strings.ToUpper(word)]
	return E(n), known && n != 0 && word == strings.ToLower(word)
}

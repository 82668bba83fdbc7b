package client

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// ChangeStatus is how a path differs from the source. A rename is a deletion and an addition.
type ChangeStatus string

// The change statuses.
const (
	ChangeAdded    ChangeStatus = "added"
	ChangeModified ChangeStatus = "modified"
	ChangeDeleted  ChangeStatus = "deleted"
	ChangeRetyped  ChangeStatus = "retyped" // a file became a link, a directory a file, …
)

// Risk says how a changed file could act outside of the sandbox after it is applied.
type Risk string

// The risks, the highest last.
const (
	RiskNone         Risk = ""
	RiskTrustedLater Risk = "trusted_later" // tools of the host read it and follow it
	RiskRunsOnHost   Risk = "runs_on_host"  // git runs it, or a user who starts it by name
)

// Outcome is what Apply did, or would do, with a path.
type Outcome string

// The outcomes.
const (
	OutcomeApplied  Outcome = "applied"  // the change was applied to the source
	OutcomePresent  Outcome = "present"  // the source already had the same state
	OutcomeKept     Outcome = "kept"     // not deleted, because the sandbox may not delete it
	OutcomeConflict Outcome = "conflict" // the source changed since the sandbox saw it
	OutcomeRefused  Outcome = "refused"  // the policy does not let the sandbox write there
	OutcomeFailed   Outcome = "failed"   // the host's file system refused it
	OutcomeSkipped  Outcome = "skipped"  // not tried, because another path stopped the whole apply
	// OutcomeChangedSinceReview: left out, because it differs from what ApplyReviewed names.
	OutcomeChangedSinceReview Outcome = "changed_since_review"
	// OutcomeLeftOut: never applied, see FileDiff.LeftOut.
	OutcomeLeftOut Outcome = "left_out"
)

// ConflictKind is what a conflict is about.
type ConflictKind string

// The kinds.
const (
	ConflictText             ConflictKind = "text"              // both changed the same lines
	ConflictBinary           ConflictKind = "binary"            // both changed a file that is not merged by lines
	ConflictTooLarge         ConflictKind = "too_large"         // both changed a file that is too large to be merged
	ConflictNoBase           ConflictKind = "no_base"           // both changed a file of which a version cannot be read
	ConflictMode             ConflictKind = "mode"              // both changed the mode
	ConflictDeleteModify     ConflictKind = "delete_modify"     // one deleted what the other changed
	ConflictRenameEdit       ConflictKind = "rename_edit"       // the sandbox renamed what the source changed
	ConflictTypeChange       ConflictKind = "type_change"       // one made something of another type of it
	ConflictBothAdded        ConflictKind = "both_added"        // both made it
	ConflictDirectory        ConflictKind = "directory"         // its directory is missing, or in conflict
	ConflictHidden           ConflictKind = "hidden"            // the source has an entry there that the policy hides
	ConflictHiddenBelow      ConflictKind = "hidden_below"      // it replaces a directory with entries that the sandbox did not delete
	ConflictChangedMeanwhile ConflictKind = "changed_meanwhile" // the source changed it during the apply
	ConflictLink             ConflictKind = "link"              // both changed the target of a link; only of Merge
	ConflictRefused          ConflictKind = "refused"           // a policy does not permit the change; only of Merge
)

// ConflictResolution is what ApplyResolving does with lines that the source and the sandbox have
// both changed, and Merge with what two sandboxes have.
type ConflictResolution string

// The resolutions.
const (
	// ResolveOurs takes the source's lines. Of a file that cannot be merged by lines, the source
	// keeps its version, and the sandbox its own.
	ResolveOurs ConflictResolution = "ours"
	// ResolveTheirs takes the sandbox's lines, and its version of a file that cannot be merged by
	// lines.
	ResolveTheirs ConflictResolution = "theirs"
	// ResolveMarkers places both between conflict markers, as git does.
	ResolveMarkers ConflictResolution = "markers"
)

// ChangeKind is the kind of a change of a view.
type ChangeKind string

// The kinds of changes.
const (
	KindCreated  ChangeKind = "created"
	KindModified ChangeKind = "modified" // its content, mode or times
	KindDeleted  ChangeKind = "deleted"
	KindRenamed  ChangeKind = "renamed"
	KindLost     ChangeKind = "lost" // only of Watch: too many changes to keep all
)

// SessionStatus is the state of a session.
type SessionStatus string

// The states of a session.
const (
	SessionActive SessionStatus = "active"
	SessionClosed SessionStatus = "closed" // its shell has ended
)

// word converts a value of an enum of the API: "CHANGE_STATUS_ADDED" to "added", the zero value to
// "".
func word(prefix string, value fmt.Stringer) string {
	w := strings.ToLower(strings.TrimPrefix(value.String(), prefix))
	if w == "unspecified" {
		return ""
	}
	return w
}

// knownWord is word, but "" for a value of a newer server.
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

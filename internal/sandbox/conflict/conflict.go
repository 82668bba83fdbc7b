// Package conflict has the words for two versions that contradict each other: what a conflict is
// about, and what becomes of it. An apply compares a source with a sandbox, a merge two sandboxes;
// both use the same words, as the command line and the API do. The package is pure.
package conflict

// Kind is what a conflict is about.
type Kind string

// The kinds.
const (
	Text             Kind = "text"              // both have changed the same lines
	Binary           Kind = "binary"            // both have changed a file that is not merged by lines
	TooLarge         Kind = "too_large"         // both have changed a file that is too large to be merged
	NoBase           Kind = "no_base"           // both have changed a file of which a version cannot be read
	Link             Kind = "link"              // both have changed the target of a link; only of a merge
	Mode             Kind = "mode"              // both have changed the mode
	DeleteModify     Kind = "delete_modify"     // one has deleted what the other has changed
	RenameEdit       Kind = "rename_edit"       // one has renamed what the other has changed
	TypeChange       Kind = "type_change"       // one has made something of another type of it
	BothAdded        Kind = "both_added"        // both have made it
	Directory        Kind = "directory"         // its directory is missing, or in conflict
	Hidden           Kind = "hidden"            // a policy hides what is there
	HiddenBelow      Kind = "hidden_below"      // it replaces a directory with entries that a policy hides
	Refused          Kind = "refused"           // a policy does not permit the change; only of a merge
	ChangedMeanwhile Kind = "changed_meanwhile" // the source has changed it during the apply
)

// Resolution says what becomes of conflicts. "Ours" are the versions of what gets the changes: the
// source of an apply, or the sandbox into which another one is merged.
type Resolution uint8

// The resolutions. With the first four, texts that both have changed are merged by lines. Only an
// apply has the others.
const (
	Merge     Resolution = iota // nothing is changed if a conflict remains
	Ours                        // where the two contradict each other, ours wins
	Theirs                      // where they do, theirs wins
	Markers                     // where texts do, both are placed between markers
	Stop                        // nothing is changed, also where a text could be merged
	Leave                       // ours stays, and the paths without a conflict are applied
	Overwrite                   // theirs wins as a whole, unless a directory is in the way
)

// Merges reports whether texts are merged.
func (how Resolution) Merges() bool { return how <= Markers }

// Stops reports whether a conflict that remains stops everything.
func (how Resolution) Stops() bool { return how <= Stop }

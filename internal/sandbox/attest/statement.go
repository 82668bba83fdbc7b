// Package attest makes and checks signed statements about an apply: which changes a sandbox
// brought into its source, and under which policies, hosts and mounts it ran.
//
// A statement is an in-toto Statement v1 in a JSON file. Its signature is beside it, in the SSHSIG
// format of ssh-keygen(1) -Y, which also makes and checks it. The package promises that it reads
// hostile statements within bounds, and that a check says of everything whether it was made.
package attest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/contributor"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// The types of a statement: that of in-toto, and that of the predicate.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://github.com/agentfense/agentfense/apply/v1"
)

// The names of subjects that are no files. The slash keeps them apart from the names of files.
const (
	// changesSubject is the first subject. Its digest is that of the applied changes, so that it
	// also covers deletions, modes and links.
	changesSubject = "/changes"
	// commitSubject is the commit.
	commitSubject = "/commit"
)

// deleted is the status of a change without an entry.
const deleted = "deleted"

// Statement is an in-toto Statement v1 about one apply.
type Statement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     Predicate `json:"predicate"`
}

// Subject names the content of an applied file, all applied changes, or a commit.
type Subject struct {
	Name   string `json:"name"` // path relative to the source, escaped; "/changes" for all of them
	Digest Digest `json:"digest"`
}

// Digest is a digest as in-toto writes it.
type Digest struct {
	SHA256    string `json:"sha256,omitempty"`    // in hex
	GitCommit string `json:"gitCommit,omitempty"` // the id of a commit of git
}

// Predicate says what was applied, and what the sandbox could see and reach.
type Predicate struct {
	Changes []Change `json:"changes"` // by path
	// LeftOut is the number of changes that this apply did not take.
	LeftOut int     `json:"left_out"`
	Review  Review  `json:"review"`
	Sandbox Sandbox `json:"sandbox"`
	// Mount is the mount to which the changes were applied; empty for the workspace. Paths
	// of changes then begin at its root.
	Mount string `json:"mount,omitempty"`
	// Commit is the commit that has the changes, if they were applied to a branch.
	Commit *Commit `json:"commit,omitempty"`
	// Policies are those of the workspace: first the one in force, then earlier ones.
	Policies []Policy `json:"policies"`
	Mounts   []Mount  `json:"mounts"`
	// EarlierMounts are mounts that the sandbox had and does not have now, or has in another way.
	EarlierMounts []Mount `json:"earlier_mounts,omitempty"`
	Network       Network `json:"network"`
	// Contributors are where changes of the sandbox are from that it did not make itself.
	Contributors []Contributor `json:"contributors,omitempty"`
	Audit        Audit         `json:"audit"`
	Version      string        `json:"agentfense_version"`
	Time         time.Time     `json:"time"`
}

// Change is one applied change.
type Change struct {
	Path   string `json:"path"`   // absolute in the workspace, escaped
	Status string `json:"status"` // added, modified, deleted or retyped
	// Mode is the type and the permission bits in octal, as git writes them; empty for a deletion.
	Mode   string `json:"mode,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of a regular file's content, in hex
	Target string `json:"target,omitempty"` // of a symbolic link, escaped
}

// Commit is a commit of git that has the applied changes and nothing else.
type Commit struct {
	ID     string `json:"id"`
	Branch string `json:"branch"`           // escaped
	Parent string `json:"parent,omitempty"` // its only parent; empty if it has none
	Dir    string `json:"dir"`              // the source in the repository: absolute in it, escaped
}

// Review names what a person was shown, as diff prints it.
type Review struct {
	Digest string `json:"digest"`
}

// Sandbox identifies the sandbox.
type Sandbox struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Runtime string    `json:"runtime"`
	Image   string    `json:"image,omitempty"` // of docker
	Created time.Time `json:"created"`
}

// Policy is a list of rules with its digest: the SHA-256 of the JSON text without spaces.
type Policy struct {
	SHA256 string          `json:"sha256"`
	Rules  json.RawMessage `json:"rules"`
}

// Mount is a directory that the sandbox saw in addition to the workspace.
type Mount struct {
	Name     string   `json:"name"`
	Mode     string   `json:"mode"`
	Policies []Policy `json:"policies,omitempty"` // as Predicate.Policies; none if everything can be read
}

// Audit is the state of the audit log after the apply.
type Audit struct {
	Head     string `json:"head"` // SEQ:HASH
	Archived uint64 `json:"archived,omitempty"`
	Gaps     int    `json:"gaps,omitempty"`
	Lost     uint64 `json:"lost,omitempty"`
}

// About is what a statement says of its making.
type About struct {
	Version  string // of agentfense
	Time     time.Time
	Reviewed string // the digest of shown
	Commit   *Commit
	Files    []vpath.Path // that Commit changes
}

// New makes a statement about an apply of what shown has. log is the state of the audit log
// afterwards. Errors: Precondition, if shown does not have what was applied.
func New(s *record.Sandbox, shown manifest.Manifest, result *apply.Result, log *audit.Summary, about About) (*Statement, error) {
	r, err := wholeOf(s)
	if err != nil {
		return nil, err
	}
	self := r.Describe()
	is, err := contributorOf(&self)
	if err != nil {
		return nil, err
	}
	st := &Statement{Type: StatementType, PredicateType: PredicateType, Predicate: Predicate{
		Changes: []Change{}, Mount: s.Mount(), Commit: about.Commit, Review: Review{about.Reviewed}, Version: about.Version, Time: about.Time.UTC(),
		Sandbox:  Sandbox{Name: r.Name, ID: string(r.ID), Runtime: r.Runtime, Image: r.Image, Created: r.CreatedAt.UTC()},
		Policies: is.Policies, Mounts: is.Mounts, EarlierMounts: is.EarlierMounts, Network: *is.Network,
		Audit: Audit{Head: log.Head.String(), Archived: log.Archived, Gaps: log.Gaps, Lost: log.Lost},
	}}
	if st.Predicate.Contributors, err = contributorsOf(r.Contributors); err != nil {
		return nil, err
	}
	if about.Commit != nil {
		return st, st.addCommitted(shown, result, about.Files)
	}
	return st, st.add(shown, result)
}

// wholeOf returns the record, as it is now, of a sandbox for which s stands, also if it stands for
// a mount. A change whose event is in the audit log already is in the record: both are written
// while the home is locked.
func wholeOf(s *record.Sandbox) (r record.Record, err error) {
	err = s.Home.Locked(func() error {
		whole, err := s.Home.Open(s.Name())
		switch {
		case err != nil:
			return err
		case whole.ID() != s.ID():
			return errdefs.New(errdefs.Precondition, "attest: sandbox %s was replaced", s.Name())
		}
		r = whole.Record()
		return nil
	})
	return r, err
}

// add adds what was applied.
func (st *Statement) add(shown manifest.Manifest, result *apply.Result) error {
	for i := range result.Paths {
		p := &result.Paths[i]
		if st.isLeftOut(p) || p.Implied { // a directory of another change
			continue
		}
		if err := st.addChange(shown, p); err != nil {
			return err
		}
	}
	return st.addSubjects()
}

// addCommitted adds the files that the commit changes. What HEAD had already is no part of it.
func (st *Statement) addCommitted(shown manifest.Manifest, result *apply.Result, files []vpath.Path) error {
	committed := map[vpath.Path]bool{}
	for _, p := range files {
		committed[p] = true
	}
	for i := range result.Paths {
		p := &result.Paths[i]
		if st.isLeftOut(p) || !committed[p.Path] {
			continue
		}
		if err := st.addChange(shown, p); err != nil {
			return err
		}
	}
	return st.addSubjects()
}

// isLeftOut reports whether a change was not applied, and counts it.
func (st *Statement) isLeftOut(p *apply.PathResult) bool {
	if p.Outcome == apply.Applied || p.Outcome == apply.Present {
		return false
	}
	if !p.Implied {
		st.Predicate.LeftOut++
	}
	return true
}

// addChange adds a change as it was shown. Errors: Precondition if it was not.
func (st *Statement) addChange(shown manifest.Manifest, p *apply.PathResult) error {
	entry, known := shown[p.Path]
	if !known {
		return errdefs.New(errdefs.Precondition, "attest: %s was applied, but the review %s does not have it", p.Path, st.Predicate.Review.Digest)
	}
	status, err := p.Status.MarshalText()
	if err != nil {
		return err
	}
	change := Change{Path: p.Path.String(), Status: string(status), SHA256: entry.SHA256, Target: entry.Target}
	if entry.Mode != 0 {
		change.Mode = fmt.Sprintf("%06o", entry.Mode)
	}
	st.Predicate.Changes = append(st.Predicate.Changes, change)
	return nil
}

func (st *Statement) addSubjects() (err error) {
	st.Subject, err = subjectsOf(st.Predicate.Changes, st.Predicate.Commit)
	return err
}

// subjectsOf returns the subjects of a statement about the changes and the commit that has them,
// nil for none. Errors: Invalid.
func subjectsOf(list []Change, commit *Commit) ([]Subject, error) {
	all := manifest.Manifest{}
	subjects := []Subject{{Name: changesSubject}}
	if commit != nil {
		subjects = append(subjects, Subject{Name: commitSubject, Digest: Digest{GitCommit: commit.ID}})
	}
	for i := range list {
		p, entry, err := list[i].entry()
		if err != nil {
			return nil, err
		}
		all[p] = entry
		if entry.SHA256 != "" {
			subjects = append(subjects, Subject{Name: p.String()[1:], Digest: Digest{SHA256: entry.SHA256}})
		}
	}
	if len(all) != len(list) {
		return nil, errdefs.New(errdefs.Invalid, "changes: a path is named twice")
	}
	subjects[0].Digest.SHA256 = all.Digest()
	return subjects, nil
}

// entry returns the path of the change, and what apply made of it. Errors: Invalid.
func (c *Change) entry() (p vpath.Path, e manifest.Entry, err error) {
	bad := func(what string) (vpath.Path, manifest.Entry, error) {
		return "", e, errdefs.New(errdefs.Invalid, "change of %s: %s", vpath.Quote(c.Path), what)
	}
	raw, err := vpath.Unescape(c.Path)
	if err == nil {
		p, err = vpath.Parse(raw)
	}
	if err != nil || p.String() != c.Path || p.IsRoot() {
		return bad("not the path of a change")
	}
	e = manifest.Entry{SHA256: c.SHA256, Target: c.Target}
	if c.Mode != "" {
		if n, err := fmt.Sscanf(c.Mode, "%o", &e.Mode); n != 1 || err != nil || fmt.Sprintf("%06o", e.Mode) != c.Mode || e.Mode == 0 {
			return bad("mode " + vpath.Quote(c.Mode) + " is malformed")
		}
	}
	switch {
	case (e.Mode == 0) != (c.Status == deleted):
		return bad("the mode does not go with the status")
	case (e.SHA256 != "") != e.IsRegular() || e.SHA256 != "" && !record.IsDigest(e.SHA256):
		return bad("the digest does not go with the mode")
	case (e.Target != "") != (e.Mode&record.TypeBits == unix.S_IFLNK):
		return bad("the target does not go with the mode")
	}
	return p, e, nil
}

// policiesOf returns the rules in force, and then the earlier ones.
func policiesOf(rules []policy.Rule, earlier [][]policy.Rule) ([]Policy, error) {
	var list []Policy
	for _, rules := range append([][]policy.Rule{rules}, earlier...) {
		sum, text, err := contributor.EncodeRules(rules)
		if err != nil {
			return nil, err
		}
		list = append(list, Policy{SHA256: sum, Rules: text})
	}
	return list, nil
}

func mountsOf(mounts []record.Mount) ([]Mount, error) {
	list := []Mount{}
	for _, m := range mounts {
		mount := Mount{Name: m.Name, Mode: string(m.Mode)}
		if m.Mode.HasRules() {
			var err error
			if mount.Policies, err = policiesOf(m.Rules, m.EarlierRules); err != nil {
				return nil, err
			}
		}
		list = append(list, mount)
	}
	return list, nil
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Encode returns the text of the statement, for a file.
func (st *Statement) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "attest: %w", err)
	}
	return append(text, '\n'), nil
}

// Parse reads the text of a statement, and checks that it agrees with itself. Errors: Invalid.
func Parse(text []byte) (*Statement, error) {
	var st Statement
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&st); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "not a statement of agentfense: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errdefs.New(errdefs.Invalid, "not a statement of agentfense: text after its end")
	}
	if st.Type != StatementType || st.PredicateType != PredicateType {
		return nil, errdefs.New(errdefs.Invalid, "not a statement about an apply: types %s and %s (want %s and %s)",
			vpath.Quote(st.Type), vpath.Quote(st.PredicateType), StatementType, PredicateType)
	}
	if again, err := st.Encode(); err != nil || !bytes.Equal(again, text) {
		// One text for each statement: no key twice or in another case, no other form.
		return nil, errdefs.New(errdefs.Invalid, "not in the form that agentfense writes")
	}
	subjects, err := subjectsOf(st.Predicate.Changes, st.Predicate.Commit)
	if err == nil {
		err = st.Predicate.Commit.check()
	}
	if err != nil {
		return nil, err
	}
	if !slices.Equal(subjects, st.Subject) {
		return nil, errdefs.New(errdefs.Invalid, "its subjects are not its changes")
	}
	return &st, st.checkAuthors()
}

// checkAuthors checks the digests of the rules, and the networks.
func (st *Statement) checkAuthors() error {
	if len(st.Predicate.Policies) == 0 {
		return errdefs.New(errdefs.Invalid, "it has no policy")
	}
	if in := st.Predicate.Mount; in != "" && !slices.ContainsFunc(st.Predicate.Mounts, func(m Mount) bool { return m.Name == in }) {
		return errdefs.New(errdefs.Invalid, "its changes are of the mount %s, which it does not have", vpath.Quote(in))
	}
	all := st.Policies()
	mounts := st.mounts()
	if err := st.Predicate.Network.check(); err != nil {
		return err
	}
	for i := range st.Predicate.Contributors {
		c := &st.Predicate.Contributors[i]
		if err := c.check(); err != nil {
			return err
		}
		mounts = slices.Concat(mounts, c.Mounts, c.EarlierMounts)
	}
	for _, m := range mounts {
		all = append(all, m.Policies...)
	}
	for i := range all {
		rules, err := all[i].decode()
		if err != nil {
			return err
		}
		sum, text, err := contributor.EncodeRules(rules)
		if err != nil {
			return errdefs.New(errdefs.Invalid, "policy %s: %w", vpath.Quote(all[i].SHA256), err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, all[i].Rules); err != nil || !bytes.Equal(compact.Bytes(), text) {
			// Encode keeps their text, and two readers could read a key twice in two ways.
			return errdefs.New(errdefs.Invalid, "policy %s: its rules are not in the form that agentfense writes", vpath.Quote(all[i].SHA256))
		}
		if sum != all[i].SHA256 {
			return errdefs.New(errdefs.Invalid, "policy %s: its rules have another digest", vpath.Quote(all[i].SHA256))
		}
	}
	return nil
}

// mounts returns the mounts that the sandbox had at any time.
func (st *Statement) mounts() []Mount {
	return slices.Concat(st.Predicate.Mounts, st.Predicate.EarlierMounts)
}

// Policies returns the policies of the workspace: those of the sandbox, then those of contributors.
func (st *Statement) Policies() []Policy {
	all := slices.Clone(st.Predicate.Policies)
	for _, c := range st.Predicate.Contributors {
		all = append(all, c.Policies...)
	}
	return all
}

// Compile compiles Policies, to prove something of each. Errors: Invalid.
func (st *Statement) Compile() ([]*policy.Policy, error) {
	all := st.Policies()
	list := make([]*policy.Policy, len(all))
	for i, p := range all {
		rules, err := p.decode()
		if err == nil {
			list[i], err = policy.Compile(rules, policy.Options{})
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

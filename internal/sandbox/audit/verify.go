package audit

import (
	"cmp"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Summary is the result of Verify for an unchanged log.
type Summary struct {
	Sandbox, ID Text
	Records     uint64
	Archived    uint64 // number of the last archived record
	Gaps        int    // number of gap records
	Lost        uint64 // lost events and records, as counted by the gap records
	Torn        bool   // it ends with an interrupted write, for which the next Append writes a gap record
	Head        Head   // to store elsewhere and pass to a later Verify
	NoHeadFile  bool   // without a head file, Verify cannot notice removed records at the end
}

// Verify checks that no record of the log at path was changed, removed or moved since it
// was written. It uses the log itself, its head file and the known heads from earlier.
// Errors: Invalid, naming the line, if a check fails; NotFound, Denied.
func Verify(path string, known ...Head) (Summary, error) {
	return VerifyParts([]string{path}, known...)
}

// VerifyParts is Verify for a log from which earlier records were moved: parts are the files
// to which Archive moved them and then the log, in the order of Order.
func VerifyParts(parts []string, known ...Head) (Summary, error) {
	v := verifier{known: known}
	// Read the head before the log, so that a concurrent append cannot make the log look
	// older than the head.
	if f, err := os.Open(parts[len(parts)-1] + headSuffix); err == nil {
		head, ok := readHead(f)
		f.Close()
		if ok {
			v.known = append([]Head{head}, known...)
		}
		v.NoHeadFile = !ok
	} else {
		v.NoHeadFile = true
	}
	for i, path := range parts {
		err := v.read(path)
		if err == nil {
			err = v.end(i == len(parts)-1)
		}
		if errdefs.Is(err, errdefs.Invalid) {
			err = errdefs.New(errdefs.Invalid, "audit log %s: %w", filepath.Base(path), err)
		}
		if err != nil {
			return v.Summary, err
		}
	}
	return v.Summary, nil
}

// Order returns the parts of a log for VerifyParts: the files to which Archive moved records, in
// the order of these records, and the log. Errors: those of Read.
func Order(path string, archives []string) ([]string, error) {
	first := make(map[string]uint64, len(archives))
	for _, archive := range archives {
		f, err := openFile(archive, unix.O_RDONLY)
		if err != nil {
			return nil, failed("read", archive, err)
		}
		r, err := newScanner(f).next()
		f.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, failed("read", archive, err)
		}
		first[archive] = r.Seq
	}
	parts := slices.Clone(archives)
	slices.SortStableFunc(parts, func(a, b string) int { return cmp.Compare(first[a], first[b]) })
	return append(parts, path), nil
}

// verifier checks the chain of records.
type verifier struct {
	Summary
	known     []Head
	file      io.ReaderAt
	tornBytes int64 // of the lines since the last record
	tornAt    int64
	tornLine  int
}

func (v *verifier) read(path string) error {
	f, size, err := openStable(path)
	if err != nil {
		return err
	}
	defer f.Close()
	v.file = f
	return ReadFrom(io.NewSectionReader(f, 0, size), v.record)
}

func bad(line int, format string, args ...any) error {
	return errdefs.New(errdefs.Invalid, "line %d: "+format, append([]any{line}, args...)...)
}

func (v *verifier) record(r Record) error {
	if m, ok := r.Event.(Malformed); ok {
		v.malformed(r, m)
		return nil
	}
	gap, isGap := r.Event.(Gap)
	if err := v.account(r.Line, gap); err != nil {
		return err
	}
	if err := v.archived(r); err != nil {
		return err
	}
	switch {
	case r.Seq != v.Head.Seq+1:
		return bad(r.Line, "record %d follows record %d", r.Seq, v.Head.Seq)
	case r.Prev != v.Head.Hash:
		return bad(r.Line, "record %d was not written after the line above", r.Seq)
	case v.Records > 0 && r.ID != v.ID:
		return bad(r.Line, "record of another sandbox")
	}
	v.tornBytes = 0
	v.Sandbox, v.ID = r.Sandbox, r.ID
	v.Head = Head{Seq: r.Seq, Hash: r.Hash}
	v.Records++
	if isGap {
		v.Gaps++
		v.Lost += gap.Lost
	}
	for _, k := range v.known {
		if k.Seq == r.Seq && k.Hash != r.Hash {
			return bad(r.Line, "record %d is not the one that was recorded as the head", r.Seq)
		}
	}
	return nil
}

// archived accepts an Archived record at the beginning of a log. The head of an archived
// record cannot be checked.
func (v *verifier) archived(r Record) error {
	a, ok := r.Event.(Archived)
	if !ok || v.Records > 0 || a.Records+1 != r.Seq {
		return nil
	}
	v.Head, v.Archived = Head{Seq: a.Records, Hash: r.Prev}, a.Records
	for _, k := range v.known {
		if k.Seq < a.Records || k.Seq == a.Records && k.Hash != r.Prev {
			return bad(r.Line, "record %d was archived: verify the archive with that head", k.Seq)
		}
	}
	return nil
}

func (v *verifier) malformed(r Record, m Malformed) {
	if v.tornBytes == 0 {
		v.tornAt, v.tornLine = r.Offset, r.Line
	}
	v.tornBytes += m.Bytes + 1
}

// account checks that g describes the torn bytes before it. g is zero for other records.
func (v *verifier) account(line int, g Gap) error {
	switch {
	case v.tornBytes == 0 && g.Bytes != 0:
		return bad(line, "the %d bytes that this gap record accounts for are not there", g.Bytes)
	case v.tornBytes == 0:
		return nil
	}
	sum, err := sumOf(v.file, v.tornAt, v.tornBytes)
	if err != nil {
		return err
	}
	if g.Offset != v.tornAt || g.Bytes != v.tornBytes || g.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		return bad(v.tornLine, "not a record as it was written, and no gap record accounts for it")
	}
	return nil
}

// end checks a part that was read, and whether it is the last one.
func (v *verifier) end(last bool) error {
	v.Torn = v.tornBytes > 0
	if v.Torn && (v.NoHeadFile || !last) {
		return bad(v.tornLine, "not a record, and no head beside the log tells whether it was one")
	}
	if !last {
		return nil
	}
	for _, k := range v.known {
		if k.Seq > v.Head.Seq {
			return errdefs.New(errdefs.Invalid, "it ends with record %d, but had %d: the rest was removed, or lost in a power failure", v.Head.Seq, k.Seq)
		}
	}
	return nil
}

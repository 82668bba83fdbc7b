package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// riskOf are risks on the wire.
var riskOf = map[sandbox.Risk]sandboxv1.Risk{
	sandbox.NoRisk:       sandboxv1.Risk_RISK_UNSPECIFIED,
	sandbox.TrustedLater: sandboxv1.Risk_RISK_TRUSTED_LATER,
	sandbox.RunsOnHost:   sandboxv1.Risk_RISK_RUNS_ON_HOST,
}

// Diff lists what a sandbox changed, by path. A page token is the last path of
// the page before, so that what changes in between moves nothing.
func (c *sandboxServer) Diff(ctx context.Context, r *sandboxv1.DiffRequest) (answer *sandboxv1.DiffResponse, err error) {
	sb, err := c.service.sandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	shown, token := splitToken(r.PageToken)
	after, err := pageAfter(r.PageSize, token)
	if err != nil {
		return nil, err
	}
	paths, err := selection(r.Paths)
	if err != nil {
		return nil, err
	}
	review, err := sb.Review(paths...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, review.Close()) }()
	files := slices.DeleteFunc(slices.Clone(review.Files()), func(f sandbox.FileDiff) bool { return r.PageToken != "" && f.Path <= after })
	slices.SortFunc(files, func(a, b sandbox.FileDiff) int { return strings.Compare(string(a.Path), string(b.Path)) })
	answer = &sandboxv1.DiffResponse{}
	size := 0
	for i := range files {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d, err := wireDiff(review, &files[i], r.NamesOnly)
		if err != nil {
			return nil, err
		}
		size += proto.Size(d) + pageFrame
		if i > 0 && (r.PageSize > 0 && i >= int(r.PageSize) || size+len(files[i].Path)*4 > maxResultBytes) {
			if answer.Digest, err = remember(review, r, shown, files[:i]); err != nil {
				return nil, err
			}
			answer.NextPageToken = pageToken(answer.Digest, files[i-1].Path)
			return answer, nil
		}
		answer.Files = append(answer.Files, d)
	}
	for _, g := range review.Groups() {
		answer.Groups = append(answer.Groups, &sandboxv1.ChangeGroup{Name: g.Name, Lines: g.Lines, Count: int64(g.Count)})
	}
	answer.Digest, err = remember(review, r, shown, files)
	return answer, err
}

// remember stores what an answer shows and returns its digest. It covers the pages
// before, whose digest the page token has.
func remember(review *sandbox.Review, r *sandboxv1.DiffRequest, before string, files []sandbox.FileDiff) (string, error) {
	switch {
	case r.NamesOnly:
		return "", nil
	case before != "":
		return review.RememberMore(before, files)
	}
	return review.Remember(r.ShownDigest, files)
}

// pageToken is where a listing goes on, with the digest of what was shown till
// there, "" for a list of names.
func pageToken(digest string, last vpath.Path) string {
	if digest == "" {
		return last.Text()
	}
	return digest + tokenMark + last.Text()
}

const tokenMark = ":"

// splitToken is the reverse of pageToken.
func splitToken(token string) (digest, path string) {
	digest, path, found := strings.Cut(token, tokenMark)
	if !found || !sandbox.IsDigest(digest) {
		return "", token
	}
	return digest, path
}

func wireDiff(review *sandbox.Review, f *sandbox.FileDiff, namesOnly bool) (*sandboxv1.FileDiff, error) {
	d := &sandboxv1.FileDiff{
		Path: f.Path.Text(), Status: changeOf[f.Status], SourceChanged: f.Stale, Old: wireSide(f.Old), New: wireSide(f.New), Group: f.Group,
		Own: f.Own, LeftOut: f.LeftOut,
	}
	if f.RenamedFrom != "" {
		d.RenamedFrom = f.RenamedFrom.Text()
	}
	if f.RenamedTo != "" {
		d.RenamedTo = f.RenamedTo.Text()
	}
	if f.Mark != nil {
		d.Risk, d.RiskReason = riskOf[f.Mark.Risk], f.Mark.Reason
	}
	if namesOnly {
		return d, nil
	}
	patch := &kept{most: maxResultBytes}
	content, err := review.WriteFilePatch(io.Writer(patch), f, sandbox.PatchOptions{Raw: true})
	if err != nil {
		return nil, err
	}
	if d.New != nil {
		d.New.Sha256 = content.SHA256
	}
	d.Binary, d.TooLarge, d.OldContentUnknown = content.Binary, content.TooLarge, content.Unknown
	d.Inserted, d.Deleted = int64(content.Inserted), int64(content.Deleted)
	if f.LeftOut != "" || content.Binary || content.TooLarge || content.Unknown || len(bytes.TrimSpace(patch.data)) == 0 {
		return d, nil
	}
	d.Patch, d.PatchBytes = wireOutput(patch.data)
	const rest = 64 << 10 // for a token, and what surrounds the file
	if patch.cut || proto.Size(d) > maxResultBytes-rest {
		d.Patch, d.PatchBytes, d.PatchOmitted = "", nil, true
	}
	return d, nil
}

func wireSide(s *sandbox.Side) *sandboxv1.FileState {
	if s == nil {
		return nil
	}
	return &sandboxv1.FileState{Mode: s.Mode, Size: s.SizeBytes, SymlinkTarget: vpath.EncodeText(s.Target)}
}

package service

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Diff lists what a sandbox changed, by path. A page token has the last path of the page before, so
// that later changes do not shift the pages.
func (c *sandboxServer) Diff(ctx context.Context, m *sandboxv1.DiffRequest) (answer *sandboxv1.DiffResponse, err error) {
	r, err := wireconv.DecodeDiff(m)
	if err != nil {
		return nil, err
	}
	part, err := c.service.changesToRead(ctx, r.Sandbox, r.Mount)
	if err != nil {
		return nil, err
	}
	rs, err := review.Open(part, r.Paths...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rs.Close()) }()
	files := slices.DeleteFunc(slices.Clone(rs.Files()), func(f review.FileDiff) bool { return f.Path <= r.Page.After })
	slices.SortFunc(files, func(a, b review.FileDiff) int { return strings.Compare(string(a.Path), string(b.Path)) })
	answer = &sandboxv1.DiffResponse{}
	size := 0
	for i := range files {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d, err := fileDiff(rs, &files[i], r.NamesOnly)
		if err != nil {
			return nil, err
		}
		size += proto.Size(d) + pageFrame
		if i > 0 && (r.Page.Size > 0 && i >= r.Page.Size || size+len(files[i].Path)*4 > maxResultBytes) {
			if answer.Digest, err = remember(rs, r, files[:i]); err != nil {
				return nil, err
			}
			answer.NextPageToken = wireconv.EncodeDiffToken(answer.Digest, files[i-1].Path)
			return answer, nil
		}
		answer.Files = append(answer.Files, d)
	}
	answer.Groups = wireconv.EncodeGroups(rs.Groups())
	answer.Digest, err = remember(rs, r, files)
	return answer, err
}

// remember stores what an answer shows and returns its digest, which also covers the pages before.
func remember(review *review.Review, r wireconv.Diff, files []review.FileDiff) (string, error) {
	switch {
	case r.NamesOnly:
		return "", nil
	case r.PageDigest != "":
		return review.RememberMore(r.PageDigest, files)
	}
	return review.Remember(r.ShownDigest, files)
}

// fileDiff returns a changed file with its patch, unless the patch does not fit in a message.
func fileDiff(r *review.Review, f *review.FileDiff, namesOnly bool) (*sandboxv1.FileDiff, error) {
	d := wireconv.EncodeFileDiff(f)
	if namesOnly {
		return d, nil
	}
	patch := &head{most: maxResultBytes}
	content, err := gitpatch.Write(patch, r, f)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(patch.data)) == 0 {
		patch.data = nil
	}
	wireconv.EncodeContent(d, f, content, patch.data)
	const rest = 64 << 10 // for the page token and the other fields of the answer
	if d.Patch != "" && (patch.cut || proto.Size(d) > maxResultBytes-rest) {
		d.Patch, d.PatchBytes, d.PatchOmitted = "", nil, true
	}
	return d, nil
}

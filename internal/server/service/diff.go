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
	p, err := pageOf(ctx, rs, r.Page, r.NamesOnly)
	if err != nil {
		return nil, err
	}
	answer = &sandboxv1.DiffResponse{Files: p.diffs}
	answer.Digest, err = remember(rs, r, p.files)
	if p.isLast {
		answer.Groups = wireconv.EncodeGroups(rs.Groups())
	} else {
		answer.NextPageToken = wireconv.EncodeDiffToken(answer.Digest, p.files[len(p.files)-1].Path)
	}
	return answer, err
}

// diffPage is a page of changed files.
type diffPage struct {
	files  []review.FileDiff
	diffs  []*sandboxv1.FileDiff // of files
	isLast bool
}

// pageOf returns a page of a review, in the order of the paths.
func pageOf(ctx context.Context, rs *review.Review, page wireconv.PageAfter, namesOnly bool) (diffPage, error) {
	files := slices.DeleteFunc(slices.Clone(rs.Files()), func(f review.FileDiff) bool { return f.Path <= page.After })
	slices.SortFunc(files, func(a, b review.FileDiff) int { return strings.Compare(string(a.Path), string(b.Path)) })
	p := diffPage{}
	size := 0
	for i := range files {
		if ctx.Err() != nil {
			return p, ctx.Err()
		}
		d, err := fileDiff(rs, &files[i], namesOnly)
		if err != nil {
			return p, err
		}
		size += proto.Size(d) + pageFrame
		if i > 0 && (page.Size > 0 && i >= page.Size || size+len(files[i].Path)*4 > maxResultBytes) {
			p.files = files[:i]
			return p, nil
		}
		p.diffs = append(p.diffs, d)
	}
	p.files, p.isLast = files, true
	return p, nil
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

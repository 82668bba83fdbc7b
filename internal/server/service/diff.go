package service

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

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
	rs, err := review.Open(sb, paths...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rs.Close()) }()
	files := slices.DeleteFunc(slices.Clone(rs.Files()), func(f review.FileDiff) bool { return r.PageToken != "" && f.Path <= after })
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
		if i > 0 && (r.PageSize > 0 && i >= int(r.PageSize) || size+len(files[i].Path)*4 > maxResultBytes) {
			if answer.Digest, err = remember(rs, r, shown, files[:i]); err != nil {
				return nil, err
			}
			answer.NextPageToken = pageToken(answer.Digest, files[i-1].Path)
			return answer, nil
		}
		answer.Files = append(answer.Files, d)
	}
	answer.Groups = wireconv.EncodeGroups(rs.Groups())
	answer.Digest, err = remember(rs, r, shown, files)
	return answer, err
}

// remember stores what an answer shows and returns its digest. It covers the pages
// before, whose digest the page token has.
func remember(review *review.Review, r *sandboxv1.DiffRequest, before string, files []review.FileDiff) (string, error) {
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
	if !found || !record.IsDigest(digest) {
		return "", token
	}
	return digest, path
}

// fileDiff returns a changed file with its patch, which is left out if it does not fit a
// message.
func fileDiff(r *review.Review, f *review.FileDiff, namesOnly bool) (*sandboxv1.FileDiff, error) {
	d := wireconv.EncodeFileDiff(f)
	if namesOnly {
		return d, nil
	}
	patch := &kept{most: maxResultBytes}
	content, err := gitpatch.Write(patch, r, f)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(patch.data)) == 0 {
		patch.data = nil
	}
	wireconv.EncodeContent(d, content, patch.data)
	const rest = 64 << 10 // for a token, and what surrounds the file
	if d.Patch != "" && (patch.cut || proto.Size(d) > maxResultBytes-rest) {
		d.Patch, d.PatchBytes, d.PatchOmitted = "", nil, true
	}
	return d, nil
}

package githistory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// batchMax is how many bytes of commits Commits reads.
const batchMax = 32 << 20

// Commits returns at most most commits that are reachable from the tips and not from known,
// by id, including those in packs. It checks the id of each, which git does not do in
// packs. shallow lists the commits at which a shallow history ends. With walled, git can
// read only the objects in o, whatever links and alternates name. Errors: as Paths;
// Precondition for more than 32 MiB; Unsupported if walled and the kernel has no Landlock.
func Commits(ctx context.Context, o Objects, tips, known, shallow []string, most int, walled bool) (map[string]Commit, error) {
	if len(tips) == 0 {
		return nil, nil
	}
	var ids []string
	err := o.ask(ctx, question{
		args:    []string{"log", "--stdin", "--format=%H", "-z", "--no-patch", "--ignore-missing", "--max-count=" + strconv.Itoa(most)},
		stdin:   strings.Join(tips, "\n") + "\n" + exclusions(known),
		hash:    len(tips[0]),
		shallow: shallow,
		walled:  walled,
	}, names(func(id string) bool {
		if isObjectID(id) {
			ids = append(ids, id)
		}
		return true
	}))
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	commits, whole := map[string]Commit{}, false
	err = o.ask(ctx, question{
		args:   []string{"cat-file", "--batch", "--buffer"},
		stdin:  strings.Join(ids, "\n") + "\n",
		hash:   len(tips[0]),
		walled: walled,
	}, func(out io.Reader) bool {
		whole = readBatch(bufio.NewReader(out), commits)
		return whole
	})
	if err == nil && !whole {
		err = errdefs.New(errdefs.Precondition, "git: more than %d bytes of commits", batchMax)
	}
	return commits, err
}

// exclusions returns the lines that exclude what is reachable from the ids.
func exclusions(ids []string) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "^%s\n", id)
	}
	return b.String()
}

// readBatch adds the commits of what git cat-file --batch prints, and reports
// whether it read them all: a line with id, type and size, the content, and the end
// of a line.
func readBatch(r *bufio.Reader, commits map[string]Commit) bool {
	left := int64(batchMax)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		field := strings.Fields(string(line))
		if len(field) != 3 {
			continue // missing
		}
		id, kind := field[0], field[1]
		size, err := strconv.ParseInt(field[2], 10, 64)
		if left -= size; err != nil || size < 0 || left < 0 {
			return false
		}
		body := make([]byte, size+1)
		if _, err := io.ReadFull(r, body); err != nil {
			return false
		}
		content := slices.Concat([]byte(kind+" "+field[2]+"\x00"), body[:size])
		if body, err := checkObject(id, "commit", content); err == nil {
			commits[id] = parseCommit(body)
		}
	}
}

package mcpserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// path reads a path of the view: relative to the workspace, or absolute as commands inside see it.
// Errors: Invalid for one that is outside of the workspace.
func (s *service) path(text string) (vpath.Path, error) {
	if text == "" {
		return "", errdefs.New(errdefs.Invalid, "path: it is empty (\".\" is the project directory)")
	}
	if !path.IsAbs(text) {
		return vpath.Parse(text)
	}
	inside, below := cutDir(path.Clean(text), s.o.Workspace)
	if !below { // a server's sandbox has the directory at another place
		inside, below = cutDir(path.Clean(text), s.sb.workspace())
	}
	if !below {
		return "", errdefs.New(errdefs.Invalid, "path %s: outside of the project directory %s; commands (exec) can read the system's files", vpath.Quote(text), vpath.Escape(s.o.Workspace))
	}
	return vpath.Parse("/" + inside)
}

// cutDir returns the path p, which must be dir or below it, without dir.
func cutDir(p, dir string) (inside string, below bool) {
	inside, below = strings.CutPrefix(p, dir)
	return inside, below && dir != "" && (inside == "" || inside[0] == '/')
}

type readInput struct {
	Path   string `json:"path" jsonschema:"file, relative to the project directory"`
	Offset int64  `json:"offset,omitempty" jsonschema:"number of bytes to skip"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"number of bytes to return; the server may return fewer"`
}

// read is the tool of that name.
func (s *service) read(ctx context.Context, _ *mcp.CallToolRequest, in readInput) (*mcp.CallToolResult, any, error) {
	p, err := s.path(in.Path)
	if err == nil && (in.Offset < 0 || in.Limit < 0) {
		err = errdefs.New(errdefs.Invalid, "offset and limit: want numbers of at least 0")
	}
	if err != nil {
		return nil, nil, err
	}
	part := part{skip: in.Offset, room: s.o.MaxOutputBytes}
	if in.Limit > 0 {
		part.room = min(part.room, in.Limit)
	}
	err = s.look(ctx, func(v backend.View) error { return v.Copy(ctx, &part, p) })
	if err != nil && !errors.Is(err, errFull) {
		return nil, nil, err
	}
	return part.result(in.Offset, errors.Is(err, errFull)), nil, nil
}

// look opens what the sandbox sees.
func (s *service) look(ctx context.Context, do func(backend.View) error) error {
	sb, err := s.sb.open(ctx)
	if err != nil {
		return err
	}
	v, err := s.o.Backend.View(ctx, sb.Ref(), "", nil)
	if err != nil {
		return err
	}
	defer v.Close()
	return do(v)
}

// errFull ends the copy of a file of which enough is known.
var errFull = errors.New("enough")

// part is a part of a file that is written to it.
type part struct {
	skip, room int64
	data       []byte
}

// Write keeps the part.
func (p *part) Write(data []byte) (int, error) {
	n := len(data)
	skipped := min(p.skip, int64(n))
	p.skip -= skipped
	data = data[skipped:]
	if int64(len(data)) > p.room {
		p.data = append(p.data, data[:p.room]...)
		p.room = 0
		return n, errFull
	}
	p.data, p.room = append(p.data, data...), p.room-int64(len(data))
	return n, nil
}

// result is the part for a model; more says that the file goes on.
func (p *part) result(offset int64, more bool) *mcp.CallToolResult {
	text, note := string(p.data), ""
	if more { // cut between characters
		for n := 1; n < utf8.UTFMax && n < len(text); n++ {
			if utf8.RuneStart(text[len(text)-n]) {
				if !utf8.FullRuneInString(text[len(text)-n:]) {
					text = text[:len(text)-n]
				}
				break
			}
		}
	}
	next := offset + int64(len(text))
	if !utf8.ValidString(text) {
		next = offset + int64(len(p.data))
		text, note = base64.StdEncoding.EncodeToString(p.data), "base64: the file is not UTF-8. "
	}
	if more {
		note += fmt.Sprintf("The file goes on: read it with offset %d.", next)
	}
	content := []mcp.Content{&mcp.TextContent{Text: text}}
	if note != "" {
		content = append(content, &mcp.TextContent{Text: strings.TrimSpace(note)})
	}
	return &mcp.CallToolResult{Content: content}
}

type writeInput struct {
	Path     string `json:"path" jsonschema:"file, relative to the project directory"`
	Content  string `json:"content" jsonschema:"whole new content"`
	Encoding string `json:"encoding,omitempty" jsonschema:"text (the default) or base64"`
}

// maxWriteBytes bounds what a file is replaced by.
const maxWriteBytes = 10 << 20

// writeScript creates or replaces the file $1 of the directory $2. It runs inside.
const writeScript = `mkdir -p -- "$2" && cat > "$1"`

// write is the tool of that name.
func (s *service) write(ctx context.Context, _ *mcp.CallToolRequest, in writeInput) (*mcp.CallToolResult, any, error) {
	p, err := s.path(in.Path)
	if err != nil {
		return nil, nil, err
	}
	content, err := contentOf(in)
	if err == nil && p.IsRoot() {
		err = errdefs.New(errdefs.Invalid, "path %q: it is the project directory", in.Path)
	}
	if err != nil {
		return nil, nil, err
	}
	sb, err := s.sb.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	inside := path.Join(sb.Record.Workspace, p.Rel())
	c := backend.Command{
		Argv:    []string{"sh", "-c", writeScript, "sh", inside, path.Dir(inside)},
		WorkDir: sb.Record.Workspace, Timeout: s.o.Timeout,
	}
	done, err := s.run(ctx, c, content, func(int64) {})
	if err != nil {
		return nil, nil, err
	}
	if done.exit.Code != 0 {
		why := strings.TrimSpace(done.stderr.text())
		return nil, nil, errdefs.New(errdefs.Denied, "write %s: %s%s", p, vpath.Escape(why), refusals(done.exit.Refused))
	}
	return textResult(fmt.Sprintf("wrote %d bytes to %s", len(content), present.Written(p))), nil, nil
}

func contentOf(in writeInput) (string, error) {
	content := in.Content
	switch in.Encoding {
	case "", "text":
	case "base64":
		decoded, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			return "", errdefs.New(errdefs.Invalid, "content: %w", err)
		}
		content = string(decoded)
	default:
		return "", errdefs.New(errdefs.Invalid, "encoding %q: want text or base64", in.Encoding)
	}
	if len(content) > maxWriteBytes {
		return "", errdefs.New(errdefs.Invalid, "content: %d bytes; a file may have at most %d", len(content), maxWriteBytes)
	}
	return content, nil
}

type listInput struct {
	Path string `json:"path,omitempty" jsonschema:"directory, relative to the project directory (the default)"`
}

type listOutput struct {
	Entries []entry `json:"entries"`
	Cut     bool    `json:"cut,omitempty" jsonschema:"there are more entries than are listed"`
}

type entry struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Permission string `json:"permission"`
	SizeBytes  int64  `json:"size_bytes"`
	ModifiedAt string `json:"modified_at"`
	Target     string `json:"symlink_target,omitempty"`
}

// maxEntries is how many entries of a directory a result has.
const maxEntries = 1000

// list is the tool of that name.
func (s *service) list(ctx context.Context, _ *mcp.CallToolRequest, in listInput) (*mcp.CallToolResult, listOutput, error) {
	out := listOutput{Entries: []entry{}}
	p, err := vpath.Root, error(nil)
	if in.Path != "" {
		p, err = s.path(in.Path)
	}
	if err != nil {
		return nil, out, err
	}
	err = s.look(ctx, func(v backend.View) error {
		entries, err := v.List(ctx, p)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if out.Cut = len(out.Entries) == maxEntries; out.Cut {
				return nil
			}
			out.Entries = append(out.Entries, entry{
				Name: vpath.Escape(e.Path.Base()), Type: present.TypeName(e.Mode), Permission: e.Permission.String(), SizeBytes: e.SizeBytes,
				ModifiedAt: e.ModifiedAt.Format(time.RFC3339), Target: vpath.Escape(e.Target),
			})
		}
		return nil
	})
	return nil, out, err
}

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

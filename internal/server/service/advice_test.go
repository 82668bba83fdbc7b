package service_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// A client of the API has perhaps no command line, so the message of an error names no command.
// The command is in a detail, for those who have one.
func TestMessagesNameNoCommand(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	sb := w.sandbox(ctx, w.codebase(ctx, "me"))
	_, err := w.snapshots.DeleteSnapshot(ctx, &sandboxv1.DeleteSnapshotRequest{SandboxId: sb, Snapshot: "absent"})
	s := status.Convert(err)
	if want := `no snapshot "absent"; list them`; !strings.HasSuffix(s.Message(), want) {
		t.Errorf("the message is %q, want …%q", s.Message(), want)
	}
	help := &errdetails.Help{}
	for _, d := range s.Details() {
		if h, is := d.(*errdetails.Help); is {
			help = h
		}
	}
	if want := "agentfense snapshot ls " + sb; len(help.Links) != 1 || help.Links[0].Description != want {
		t.Errorf("the command is %v, want %q", help.Links, want)
	}
}

// Texts of packages that a server uses give commands by errdefs.Command alone.
func TestTextsNameNoCommand(t *testing.T) {
	elsewhere := map[string]string{
		"confine/egress/secretproxy/proxy.go": "for programs inside",
		"sandbox/apply/broughtback.go":        "of the client",
		"sandbox/learn/write.go":              "comments in a file",
		"sandbox/manifest/manifest.go":        "the head of a file",
		"sandbox/record/tokenless.go":         "for who starts the server",
		"sandbox/supervise/learn.go":          "of the command line alone",
		"sandbox/supervise/notes/denied.go":   "for the user of the sandbox",
		"sandbox/uploaded/shown.go":           "of the client",
	}
	used := map[string]bool{}
	verb := regexp.MustCompile(`agentfense (apply|audit|commits|diff|discard|exec|export|files|fork|history|import|inspect|lock|logs|ls|merge|policy|prune|redo|restore|review|rm|run|snapshot|sql|start|stop|undo|unlock|verify)\b`)
	for _, wing := range []string{"sandbox", "view", "confine", "transfer", "lib", "server"} {
		root := filepath.Join("../..", wing)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
			ast.Inspect(f, func(n ast.Node) bool {
				if text, is := n.(*ast.BasicLit); is && text.Kind == token.STRING && verb.MatchString(text.Value) {
					if used[name] = true; elsewhere[name] != "" {
						return true
					}
					t.Errorf("%s: %s: give the command by errdefs.Command", name, text.Value)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range elsewhere {
		if !used[name] {
			t.Errorf("%s: has no such text any more", name)
		}
	}
}

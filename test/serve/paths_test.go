package serve_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/agentfense/agentfense/test/wire"
)

// tree is what stands below a directory: type, mode, size, time and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		found[path] = info.Mode().String() + " " + info.ModTime().String()
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			found[path] += " " + string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNoPathLeadsOutOfACodebase(t *testing.T) {
	s := start(t, withREST)
	f := s.faces()
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("alive"), 0o666); err != nil {
		t.Fatal(err)
	}
	other := s.codebase(map[string]string{"canary": "alive"})
	id := s.codebase(map[string]string{"f": "content", "d/g": "more"})
	for name, target := range map[string]string{
		"out": outside, "file": filepath.Join(outside, "canary"), "new": filepath.Join(outside, "new"), "root": "/",
		"up": "../..", "sibling": "../../" + other + "/files", "inside": "d", "loop": "loop", "d/up": "../../../" + other,
	} {
		_, err := f.grpc.One(t.Context(), callNamed(t, "UploadTree"), object{"metadata": object{"codebaseId": id, "filePath": name, "symlinkTarget": target}}.String())
		must(t, 0, err)
	}
	others := []string{outside, filepath.Join(s.home, "codebases", other)}
	before := []map[string]string{tree(t, others[0]), tree(t, others[1])}
	own := names(t, filepath.Join(s.home, "codebases", id, "files"))

	refuse := func(call, path string, word ...string) {
		t.Helper()
		request := object{"codebaseId": id, "filePath": path}
		switch call {
		case "ListFiles":
			request = object{"codebaseId": id, "path": path}
		case "UploadFiles", "UploadTree":
			request = object{"metadata": request.with("totalSize", 0)}
		}
		f.refused(t, callNamed(t, call), request.String(), codes.InvalidArgument, word...)
	}
	all := []string{"UploadFiles", "UploadTree", "DownloadFile", "DeleteFile", "ListFiles"}
	absolute := strings.Repeat("../", 20) + outside[1:]
	for _, path := range []string{
		"..", "../x", "/..", "/../../x", "d/..", "d/../../x", "d/../f", "./../x", "../" + id + "/files/f", absolute + "/canary", absolute + "/new",
		"a\x00b", "\x00", "../\x00", strings.Repeat("n", 256), "d/" + strings.Repeat("n", 256), "..\\x/../../x", `\xff/../..`,
	} {
		for _, call := range all {
			refuse(call, path, map[bool]string{true: "path: ", false: "file_path: "}[call == "ListFiles"])
		}
	}
	for _, call := range []string{"UploadFiles", "UploadTree"} {
		refuse(call, strings.Repeat("d/", 3000)+"x", "4095")
	}
	for _, path := range []string{"out/canary", "out/new", "root/etc/passwd", "up/codebases", "sibling/canary", "inside/g", "d/up/canary", "loop/x", "file/x", "new/x"} {
		for _, call := range all {
			refuse(call, path, "symbolic link")
		}
	}
	for _, path := range []string{"out", "file", "new", "root", "up", "sibling", "inside", "loop"} {
		for _, call := range []string{"UploadFiles", "DownloadFile", "ListFiles"} {
			refuse(call, path, "symbolic link")
		}
	}
	for _, path := range []string{"/", ".", "//", "./."} {
		for _, call := range []string{"UploadFiles", "UploadTree", "DownloadFile", "DeleteFile"} {
			refuse(call, path, "file_path: is required")
		}
	}

	// A leading slash, and a name that only looks evil, are of the codebase.
	for _, path := range []string{outside + "/canary", "/etc/passwd", "%2e%2e/x", "...", "..x/y", " ", "a\nb", `..\..\x`, "~root", "$HOME", "-rf", "*"} {
		_, err := f.grpc.One(t.Context(), callNamed(t, "UploadFiles"), object{"metadata": object{"codebaseId": id, "filePath": path}}.String(), object{"data": "eA=="}.String())
		must(t, 0, err)
		route := wire.Routes(callNamed(t, "DownloadFile"))[0]
		if answer := f.byRoute(t, t.Context(), route, object{"codebaseId": id, "filePath": path}.String()); answer.Status != 200 || answer.Body != "x" {
			t.Errorf("%q: %d %q", path, answer.Status, answer.Body)
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		_, err = f.grpc.One(t.Context(), callNamed(t, "DeleteFile"), object{"codebaseId": id, "filePath": top}.String())
		must(t, 0, err)
	}
	for i, dir := range others {
		if diff := cmp.Diff(before[i], tree(t, dir)); diff != "" {
			t.Errorf("outside the codebase (-before +after):\n%s", diff)
		}
	}
	// Links are removed themselves.
	if diff := cmp.Diff(own, names(t, filepath.Join(s.home, "codebases", id, "files"))); diff != "" {
		t.Errorf("in the codebase (-before +after):\n%s", diff)
	}
	for _, path := range []string{"out", "file", "root", "up", "sibling", "d/up", "loop"} {
		_, err := f.grpc.One(t.Context(), callNamed(t, "DeleteFile"), object{"codebaseId": id, "filePath": path}.String())
		must(t, 0, err)
	}
	for i, dir := range others {
		if diff := cmp.Diff(before[i], tree(t, dir)); diff != "" {
			t.Errorf("outside the codebase, after its links were removed (-before +after):\n%s", diff)
		}
	}
	if staged := names(t, filepath.Join(s.home, "codebases", id, "staging")); len(staged) != 1 {
		t.Errorf("staging holds %q", staged)
	}
}

// names are the paths below a directory, which is one of them.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		found = append(found, strings.TrimPrefix(path, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

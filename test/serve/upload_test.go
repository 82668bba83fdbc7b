package serve_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

func TestBadUploads(t *testing.T) {
	s := start(t, withREST)
	f := s.faces()
	id := s.codebase(map[string]string{"f": "content", "d/g": "more"})
	other := s.codebase(nil)
	files := filepath.Join(s.home, "codebases", id, "files")
	before := tree(t, files)
	meta := func(fields object) string {
		return object{"metadata": fields.with("codebaseId", id)}.String()
	}
	data := func(base64 string) string { return object{"data": base64}.String() }
	const invalid = codes.InvalidArgument
	both := []string{"UploadFiles", "UploadTree"}
	for _, c := range []struct {
		calls    []string
		messages []string
		code     codes.Code
		word     string
	}{
		{both, nil, invalid, "metadata: is required"},
		{both, []string{"{}"}, invalid, "data: the first message must be metadata"},
		{both, []string{data("eA==")}, invalid, "data: the first message must be metadata"},
		{both, []string{data("eA=="), meta(object{"filePath": "new"})}, invalid, "data: the first message must be metadata"},
		{both, []string{object{"metadata": object{"filePath": "new"}}.String()}, invalid, "codebase_id: is required"},
		{both, []string{meta(object{}), data("eA==")}, invalid, "file_path: is required"},
		{both, []string{meta(object{"filePath": "new", "totalSize": "-1"}), data("eA==")}, invalid, "total_size is negative"},
		{both, []string{meta(object{"filePath": "new", "totalSize": "9"}), data("eA==")}, invalid, "total_size"},
		{both, []string{meta(object{"filePath": "new", "totalSize": "1"}), data("eHh4")}, invalid, "total_size"},
		{both, []string{meta(object{"filePath": "new", "symlinkTarget": "a\x00b"})}, invalid, "symlink_target: "},
		{both, []string{meta(object{"filePath": "new", "symlinkTarget": strings.Repeat("x", 4096)})}, invalid, "symlink_target: "},
		{both, []string{meta(object{"filePath": "new", "symlinkTarget": "x", "directory": true})}, invalid, "symlink_target: "},
		{both, []string{meta(object{"filePath": "f/x"}), data("eA==")}, codes.FailedPrecondition, "/f"},
		{both, []string{meta(object{"filePath": "f", "directory": true})}, codes.FailedPrecondition, "/f"},
		{both, []string{meta(object{"filePath": "d"}), data("eA==")}, codes.FailedPrecondition, "/d"},
		{[]string{"UploadFiles"}, []string{meta(object{"filePath": "new"}), meta(object{"filePath": "new"})}, invalid, "metadata: only the first message"},
		{[]string{"UploadTree"}, []string{meta(object{"filePath": "d", "directory": true}), object{"metadata": object{"codebaseId": other, "filePath": "new"}}.String()}, invalid, "metadata.codebase_id: "},
	} {
		for _, call := range c.calls {
			_, err := f.grpc.One(t.Context(), callNamed(t, call), c.messages...)
			wantCode(t, err, c.code, c.word)
		}
	}
	for _, call := range both {
		for _, of := range []object{{"symlinkTarget": "x"}, {"directory": true}} {
			_, err := f.grpc.One(t.Context(), callNamed(t, call), meta(of.with("filePath", "made")), data("eA=="))
			wantCode(t, err, invalid, "data: ")
		}
	}
	for query, word := range map[string]string{
		"mode=8": "mode", "mode=-1": "mode", "directory=maybe": "directory", "directory=true": "data: ", "symlinkTarget=a%00b": "symlink_target: ",
		"symlinkTarget=x&directory=true": "symlink_target: ", "symlinkTarget=%ff": "UTF-8",
	} {
		answer, err := f.rest.Do(t.Context(), "PUT", "/v1/codebases/"+id+"/files/made?"+query, strings.NewReader("x"))
		if got := (restAnswer{must(t, answer, err)}).restError(); answer.Status != 400 || got.Code != invalid || !strings.Contains(got.Message, word) {
			t.Errorf("%s: %d %s", query, answer.Status, answer.Body)
		}
	}
	if after := tree(t, files); !slices.Equal(sorted(after), sorted(before)) {
		t.Errorf("the codebase had\n%q\nand has\n%q", sorted(before), sorted(after))
	}
}

// sorted are the files of a tree with what they hold, without the directories,
// whose times change.
func sorted(tree map[string]string) []string {
	var all []string
	for path, what := range tree {
		if !strings.HasPrefix(what, "d") {
			all = append(all, path+" "+what)
		}
	}
	slices.Sort(all)
	return all
}

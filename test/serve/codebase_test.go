package serve_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

func TestCodebases(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	t.Run("bad input names its field", func(t *testing.T) {
		_, err := s.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{OwnerId: "me"})
		wantCode(t, err, codes.InvalidArgument, "name")
		_, err = s.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{Name: "x"})
		wantCode(t, err, codes.InvalidArgument, "owner_id")
		_, err = s.codebases.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{})
		wantCode(t, err, codes.InvalidArgument, "codebase_id")
		for _, id := range []string{"cb_0123456789abcdef", "cb_x", "../../etc"} {
			_, err = s.codebases.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{CodebaseId: id})
			wantCode(t, err, codes.NotFound, "no such codebase")
		}
	})
	t.Run("pages", func(t *testing.T) {
		var want, got []string
		for i := range 5 {
			made, err := s.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{Name: fmt.Sprint(i), OwnerId: "pager"})
			want = append(want, must(t, made, err).Id)
		}
		for token := ""; ; {
			page, err := s.codebases.ListCodebases(ctx, &sandboxv1.ListCodebasesRequest{OwnerId: "pager", PageSize: 2, PageToken: token})
			for _, c := range must(t, page, err).Codebases {
				got = append(got, c.Id)
			}
			if token = page.NextPageToken; token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages have %v, want %v", got, want)
		}
		_, err := s.codebases.ListCodebases(ctx, &sandboxv1.ListCodebasesRequest{PageToken: "nonsense"})
		wantCode(t, err, codes.InvalidArgument, "page_token")
	})
	t.Run("files", func(t *testing.T) {
		id := s.codebase(nil)
		big := strings.Repeat("0123456789", 30000)
		got := s.upload(id, "/a/b.txt", big)
		if got.Size != int64(len(big)) || got.FilePath != "a/b.txt" || len(got.Checksum) != 32 {
			t.Errorf("uploaded %v", got)
		}
		if back, err := s.download(id, "a/b.txt"); back != big || err != nil {
			t.Errorf("downloaded %d bytes, %v", len(back), err)
		}
		list, err := s.codebases.ListFiles(ctx, &sandboxv1.ListFilesRequest{CodebaseId: id, Recursive: true})
		files := must(t, list, err).Files
		if len(files) != 2 || files[0].Path != "a" || !files[0].IsDir || files[1].Path != "a/b.txt" || files[1].Name != "b.txt" {
			t.Errorf("listed %v", files)
		}
		_, err = s.download(id, "a/absent")
		wantCode(t, err, codes.NotFound)
	})
	t.Run("no path leads out", func(t *testing.T) {
		id := s.codebase(nil)
		for _, path := range []string{"../x", "a/../../x", "..", "a\x00b", ""} {
			_, err := s.tryUpload(&sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: path}, "evil")
			wantCode(t, err, codes.InvalidArgument, "file_path")
			_, err = s.download(id, path)
			wantCode(t, err, codes.InvalidArgument, "file_path")
		}
		box := s.sandbox(id)
		s.exec(box, "ln -s /etc link; ln -s /etc/passwd file")
		for _, path := range []string{"link/passwd", "file"} {
			_, err := s.download(id, path)
			wantCode(t, err, codes.InvalidArgument, "symbolic link")
			_, err = s.tryUpload(&sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: path}, "evil")
			wantCode(t, err, codes.InvalidArgument, "symbolic link")
		}
	})
	t.Run("the order of an upload", func(t *testing.T) {
		id := s.codebase(nil)
		up, err := s.codebases.UploadFiles(ctx)
		must(t, up, err)
		_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: []byte("x")}})
		_, err = up.CloseAndRecv()
		wantCode(t, err, codes.InvalidArgument, "metadata")
		_, err = s.tryUpload(&sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: "f", TotalSize: 9}, "short")
		wantCode(t, err, codes.InvalidArgument, "total_size")
	})
}

func TestWhoMayCall(t *testing.T) {
	s := start(t)
	conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	anonymous := sandboxv1.NewCodebaseServiceClient(conn)
	_, err = anonymous.ListCodebases(t.Context(), &sandboxv1.ListCodebasesRequest{})
	wantCode(t, err, codes.Unauthenticated, "Bearer")
	wrong := withToken(t.Context(), "afs_"+strings.Repeat("0", 64))
	_, err = anonymous.ListCodebases(wrong, &sandboxv1.ListCodebasesRequest{})
	wantCode(t, err, codes.Unauthenticated)
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if must(t, health, err).Status != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health %v", health)
	}
	info, err := os.Stat(filepath.Join(s.home, "token"))
	if must(t, info, err).Mode().Perm() != 0o600 {
		t.Errorf("the token has mode %o", info.Mode().Perm())
	}
}

func TestUploadsSurviveAKill(t *testing.T) {
	s := start(t)
	id := s.codebase(map[string]string{"f": "whole\n"})
	up, err := s.codebases.UploadFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: "f"}}})
	_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: []byte("half")}})
	s.end(syscall.SIGKILL)
	s.serve()
	if got, err := s.download(id, "f"); got != "whole\n" || err != nil {
		t.Errorf("after the kill it is %q, %v", got, err)
	}
	s.upload(id, "f", "new\n")
	entry, err := s.codebases.GetCodebase(t.Context(), &sandboxv1.GetCodebaseRequest{CodebaseId: id})
	if must(t, entry, err).FileCount != 1 || entry.Size != 4 {
		t.Errorf("the codebase has %d files, %d bytes", entry.FileCount, entry.Size)
	}
}

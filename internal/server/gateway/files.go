package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

const pieceBytes = 64 << 10 // of an upload in one message, as in downloads

type uploadStream = grpc.ClientStreamingClient[sandboxv1.UploadChunk, sandboxv1.UploadResult]

// upload stores the request's body as a file.
func (g *gateway) upload(w http.ResponseWriter, r *http.Request, codebaseID, file string) {
	g.boundBody(w, r, 0)
	result, err := g.sendFile(r, codebaseID, file)
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeMessage(w, r, result)
}

func (g *gateway) sendFile(r *http.Request, codebaseID, file string) (*sandboxv1.UploadResult, error) {
	meta, err := uploadMetadata(r, codebaseID, file)
	if err != nil {
		return nil, err
	}
	ctx, err := g.call(r, sandboxv1.CodebaseService_UploadFiles_FullMethodName)
	if err != nil {
		return nil, err
	}
	// A return before the stream is closed cancels the call, so that an incomplete body is not
	// stored.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := g.codebases.UploadFiles(ctx)
	if err != nil {
		return nil, err
	}
	first := &sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: meta}}
	if err := stream.Send(first); err != nil {
		return refusal(stream, err)
	}
	piece := make([]byte, pieceBytes)
	for {
		n, readErr := fill(r.Body, piece)
		if readErr != nil && readErr != io.EOF { //nolint:errorlint // a wrapped io.EOF is an error
			return nil, invalid("body: %v", readErr)
		}
		if n > 0 {
			chunk := &sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: piece[:n]}}
			if err := stream.Send(chunk); err != nil {
				return refusal(stream, err)
			}
		}
		if readErr != nil {
			return stream.CloseAndRecv()
		}
	}
}

// fill reads until p is full. Unlike io.ReadFull it returns io.EOF at the end of r, and
// io.ErrUnexpectedEOF only for an incomplete body.
func fill(r io.Reader, p []byte) (int, error) {
	for n := 0; ; {
		if n == len(p) {
			return n, nil
		}
		m, err := r.Read(p[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
}

// refusal returns why the service ended an upload early.
func refusal(stream uploadStream, sendErr error) (*sandboxv1.UploadResult, error) {
	if !errors.Is(sendErr, io.EOF) {
		return nil, sendErr
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		return nil, err
	}
	return nil, internal("upload: the service ended it before its end")
}

func uploadMetadata(r *http.Request, codebaseID, file string) (*sandboxv1.UploadChunk_Metadata, error) {
	meta := &sandboxv1.UploadChunk_Metadata{CodebaseId: codebaseID, FilePath: file, TotalSize: max(r.ContentLength, 0)}
	query := r.URL.Query()
	if err := onlyQuery(query, "mode", "directory", "symlinkTarget", "symlink_target", "totalSize", "total_size"); err != nil {
		return nil, err
	}
	if text := cmp.Or(query.Get("totalSize"), query.Get("total_size")); text != "" {
		size, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, invalid("totalSize %q: want a number of bytes", text)
		}
		meta.TotalSize = cmp.Or(size, meta.TotalSize) // 0: unknown
	}
	meta.SymlinkTarget = cmp.Or(query.Get("symlinkTarget"), query.Get("symlink_target"))
	if text := query.Get("mode"); text != "" {
		mode, err := strconv.ParseUint(text, 8, 32)
		if err != nil {
			return nil, invalid("mode %q: want an octal number, as 755", text)
		}
		meta.Mode = uint32(mode)
	}
	if text := query.Get("directory"); text != "" {
		directory, err := strconv.ParseBool(text)
		if err != nil {
			return nil, invalid("directory %q: want true or false", text)
		}
		meta.Directory = directory
	}
	return meta, nil
}

// download sends a file's content.
func (g *gateway) download(w http.ResponseWriter, r *http.Request, codebaseID, file string) {
	ctx, err := g.call(r, sandboxv1.CodebaseService_DownloadFile_FullMethodName)
	if err != nil {
		writeError(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &sandboxv1.DownloadFileRequest{CodebaseId: codebaseID, FilePath: file}
	stream, err := g.codebases.DownloadFile(ctx, request)
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeFile(w, r, stream.Recv)
}

// readView sends the content of a file of a sandbox's view.
func (g *gateway) readView(w http.ResponseWriter, r *http.Request, sandboxID string) {
	ctx, err := g.call(r, sandboxv1.SandboxService_ReadView_FullMethodName)
	if err != nil {
		writeError(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &sandboxv1.ReadViewRequest{}
	if err := readQuery(r, request); err != nil {
		writeError(w, r, err)
		return
	}
	request.SandboxId = sandboxID // overrides the query
	stream, err := g.sandboxes.ReadView(ctx, request)
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeFile(w, r, stream.Recv)
}

// writeFile answers r with a file that it receives in pieces.
func writeFile[P interface{ GetData() []byte }](w http.ResponseWriter, r *http.Request, next func() (P, error)) {
	chunk, err := next()
	if err != nil && !errors.Is(err, io.EOF) {
		writeError(w, r, err)
		return
	}
	// A browser must not show or run the file in this origin.
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment")
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	for ; err == nil; chunk, err = next() {
		if _, err := w.Write(chunk.GetData()); err != nil {
			return // the client has disconnected
		}
	}
	if !errors.Is(err, io.EOF) {
		// The status was already sent: only an aborted connection tells the client that the file
		// is incomplete.
		panic(http.ErrAbortHandler)
	}
}

// writeMessage answers r with m.
func writeMessage(w http.ResponseWriter, r *http.Request, m proto.Message) {
	text, err := newCodec().Marshal(m)
	if err != nil {
		writeError(w, r, internal("answer: %v", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

package portable

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// ImageName is the name that OCI gives the image of a sandbox.
func ImageName(sandbox string) string { return "agentfense-export:" + sandbox }

// The media types of the OCI image specification.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor refers to a blob of an image.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// OCI writes the new file name: an archive in the OCI image layout, also for docker load, with an
// image of one layer. The layer has what the sandbox created and changed, and a whiteout for what
// it deleted. Errors: as Tar; Unsupported for a name that a layer cannot hold.
func OCI(ctx context.Context, s *record.Sandbox, name string, how Options) (Result, error) {
	return export(s, name, func(d *delta, o *safefs.NewFile) error {
		const copies = 2 // the layer, and the image with it
		if err := d.fits(filepath.Dir(name), copies, how); err != nil {
			return err
		}
		layer, err := os.CreateTemp(filepath.Dir(name), safefs.ScratchPattern)
		if err != nil {
			return failed(name, err)
		}
		defer layer.Close()
		// The descriptor is enough. Another export may take the file for one that was left.
		if err := os.Remove(layer.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed(name, err)
		}
		sum := sha256.New()
		if err := d.tar(ctx, how.bound(io.MultiWriter(layer, sum)), true); err != nil {
			return err
		}
		f, err := os.OpenFile(o.Temporary, os.O_WRONLY, 0)
		if err != nil {
			return failed(name, err)
		}
		defer f.Close()
		size, err := layer.Seek(0, io.SeekCurrent)
		if err == nil {
			_, err = layer.Seek(0, io.SeekStart)
		}
		if err != nil {
			return failed(name, err)
		}
		r := s.Record()
		return writeImage(how.bound(f), canceling{ctx, layer}, descriptor{MediaType: mediaLayer, Digest: digestOf(sum.Sum(nil)), Size: size}, &r)
	})
}

// writeImage writes the archive of an image with one layer.
func writeImage(to io.Writer, layer io.Reader, of descriptor, r *record.Record) error {
	w := tar.NewWriter(to)
	image := ImageName(r.Name)
	config := encode(map[string]any{
		"created": r.CreatedAt.UTC(), "architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{of.Digest}},
	})
	configBlob := blob(mediaConfig, config)
	manifest := encode(map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": configBlob, "layers": []descriptor{of},
	})
	manifestBlob := blob(mediaManifest, manifest)
	manifestBlob.Annotations = map[string]string{
		"io.containerd.image.name": "docker.io/library/" + image, "org.opencontainers.image.ref.name": r.Name,
	}
	index := encode(map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": []descriptor{manifestBlob}})
	// docker load before version 25 reads manifest.json alone.
	docker := encode([]map[string]any{{
		"Config": pathOf(configBlob), "RepoTags": []string{image}, "Layers": []string{pathOf(of)},
	}})
	for _, file := range []struct {
		name string
		text []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{"manifest.json", docker},
		{pathOf(configBlob), config},
		{pathOf(manifestBlob), manifest},
	} {
		if err := writePart(w, file.name, int64(len(file.text)), r.CreatedAt); err != nil {
			return err
		}
		if _, err := w.Write(file.text); err != nil {
			return err
		}
	}
	if err := writePart(w, pathOf(of), of.Size, r.CreatedAt); err != nil {
		return err
	}
	if _, err := io.Copy(w, layer); err != nil {
		return err
	}
	return w.Close()
}

func writePart(w *tar.Writer, name string, size int64, at time.Time) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: at.Truncate(time.Second)})
}

func blob(media string, text []byte) descriptor {
	sum := sha256.Sum256(text)
	return descriptor{MediaType: media, Digest: digestOf(sum[:]), Size: int64(len(text))}
}

func digestOf(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

func pathOf(d descriptor) string { return "blobs/sha256/" + d.Digest[len("sha256:"):] }

// encode returns the JSON of a value that always has one.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

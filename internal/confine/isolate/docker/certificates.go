package docker

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// certificates show the authority of a spec inside. Their zero value shows none.
type certificates struct {
	files   map[string][]byte // of isolate.CertificatesDir, by name
	bundles []string          // paths inside at which the image has its own, without links
}

// readCertificates finds what the image trusts, if the spec has an authority. A container without
// mounts, which never runs and has the name of the one to come, has the image's files.
func (p *process) readCertificates(ctx context.Context, plan *plan) error {
	if plan.spec.Authority == nil {
		return nil
	}
	probe := container{
		Image: plan.spec.Image, Entrypoint: []string{initPath}, Labels: plan.labels(), HostConfig: hostConfig{NetworkMode: "none"},
	}
	made, err := p.api.create(ctx, containerName(plan.spec.ID), probe)
	if err != nil {
		return imageError(err, plan.spec.Image)
	}
	found, trusted, err := p.findBundles(ctx, made.ID)
	if err = errors.Join(err, p.api.remove(ctx, made.ID)); err != nil {
		return err
	}
	return plan.showCertificates(found, trusted)
}

// findBundles returns where a container has files of certificates, without links, and the content
// of the first.
func (p *process) findBundles(ctx context.Context, id string) (found []string, trusted []byte, err error) {
	for _, path := range isolate.Bundles {
		st, err := p.api.stat(ctx, id, path)
		if err == nil && st.LinkTarget != "" {
			path = filepath.Clean(st.LinkTarget)
			st, err = p.api.stat(ctx, id, path)
		}
		switch {
		case isStatus(err, http.StatusNotFound):
			continue
		case err != nil:
			return nil, nil, errdefs.New(errdefs.KindOf(err), "look for certificates at %s of the image: %w", path, err)
		case !st.Mode.IsRegular() || slices.Contains(found, path):
			continue
		}
		if len(found) == 0 {
			if trusted, err = p.api.read(ctx, id, path); err != nil {
				return nil, nil, err
			}
		}
		found = append(found, path)
	}
	return found, trusted, nil
}

// showCertificates takes what the image has, and in its place what this host trusts if the image
// has nothing. Where a mount of the spec or a private directory covers the image's file, there is
// nothing to replace.
func (p *plan) showCertificates(found []string, trusted []byte) (err error) {
	for _, path := range isolate.Bundles {
		if len(found) > 0 || trusted != nil {
			break
		}
		if trusted, err = isolate.ReadBundle(path); err != nil {
			return err
		}
	}
	if len(found) == 0 {
		found = isolate.Bundles[:1]
	}
	covered := slices.Collect(maps.Keys(p.private()))
	for _, m := range slices.Concat(p.views(), p.mounts) {
		covered = append(covered, m.Target)
	}
	p.certificates = certificates{
		files: p.spec.CertificateFiles(trusted),
		bundles: slices.DeleteFunc(slices.Clone(found), func(path string) bool {
			return checkTarget("certificates", path) != nil || isolate.IsBelowAny(path, covered)
		}),
	}
	return nil
}

// write writes the files to the stage.
func (c *certificates) write(stage string) error {
	for name, content := range c.files {
		path := filepath.Join(stage, name)
		err := os.WriteFile(path, content, 0o644)
		if err = errors.Join(err, os.Chmod(path, 0o644)); err != nil {
			return errdefs.New(errdefs.Internal, "stage %s: %w", name, err)
		}
	}
	return nil
}

// targets returns where the files of the stage are inside: name by path.
func (c *certificates) targets() map[string]string {
	targets := map[string]string{}
	for name := range c.files {
		targets[filepath.Join(isolate.CertificatesDir, name)] = name
	}
	for _, path := range c.bundles {
		targets[path] = filepath.Base(isolate.BundleFile)
	}
	return targets
}

// statHeader has what an answer with a file says of it, in base64.
const statHeader = "X-Docker-Container-Path-Stat"

// fileStat is what the daemon says of a file of a container.
type fileStat struct {
	Mode       fs.FileMode
	LinkTarget string // where a link leads in the end
}

// stat looks at a file of a container, and does not follow a link in the end. Errors: as those of
// do.
func (a *api) stat(ctx context.Context, id, path string) (st fileStat, err error) {
	response, err := a.do(ctx, http.MethodHead, "/containers/"+id+"/archive", url.Values{"path": {path}}, nil)
	if err != nil {
		return st, err
	}
	response.Body.Close()
	text, err := base64.StdEncoding.DecodeString(response.Header.Get(statHeader))
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err != nil {
		return st, errdefs.New(errdefs.Unsupported, "docker: %s of %s: %w", statHeader, path, err)
	}
	return st, nil
}

// read returns the content of a regular file of a container. Errors: as those of do; Precondition
// if it is too long.
func (a *api) read(ctx context.Context, id, path string) ([]byte, error) {
	response, err := a.do(ctx, http.MethodGet, "/containers/"+id+"/archive", url.Values{"path": {path}}, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	archive := tar.NewReader(response.Body)
	h, err := archive.Next()
	if err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "docker: archive of %s: %w", path, err)
	}
	if h.Size > isolate.MaxBundle {
		return nil, errdefs.New(errdefs.Precondition, "%s of the image: longer than %d bytes", path, isolate.MaxBundle)
	}
	content, err := io.ReadAll(io.LimitReader(archive, isolate.MaxBundle))
	if err != nil {
		return nil, a.unanswered(ctx, err)
	}
	return content, nil
}

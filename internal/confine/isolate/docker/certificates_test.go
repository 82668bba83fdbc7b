package docker

import (
	"archive/tar"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// imageFile is a file of an image as a daemon shows it.
type imageFile struct {
	mode    fs.FileMode
	link    string
	content string
	size    int64  // of the archive's header; 0: that of content
	stat    string // in place of the right one
}

// fileDaemon is a daemon of which each container has these files.
func fileDaemon(t *testing.T, files map[string]imageFile) *process {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/containers/x/archive" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		f, is := files[r.URL.Query().Get("path")]
		if !is {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		stat := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"name": "x", "mode": %d, "linkTarget": %q}`, f.mode, f.link))
		if f.stat != "" {
			stat = f.stat
		}
		w.Header().Set(statHeader, stat)
		if r.Method == http.MethodGet {
			archive := tar.NewWriter(w)
			size := f.size
			if size == 0 {
				size = int64(len(f.content))
			}
			_ = archive.WriteHeader(&tar.Header{Name: "x", Mode: 0o644, Size: size}) // the client notices
			_, _ = archive.Write([]byte(f.content))
		}
	}))
	t.Cleanup(server.Close)
	a := &api{http: server.Client(), address: server.URL}
	a.http.Transport = toServer{strings.TrimPrefix(server.URL, "http://")}
	return &process{api: a}
}

// toServer sends every request to one server.
type toServer struct{ host string }

func (s toServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Host = s.host
	return http.DefaultTransport.RoundTrip(r)
}

func TestCertificatesOfAnImageAreFound(t *testing.T) {
	const debian, fedora, alpine = "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"
	const extracted = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
	file := imageFile{content: "roots"}
	for name, tt := range map[string]struct {
		files map[string]imageFile
		want  []string
		err   errdefs.Kind
	}{
		"none":                           {},
		"a file":                         {files: map[string]imageFile{debian: file}, want: []string{debian}},
		"a file with a link to it":       {files: map[string]imageFile{debian: file, alpine: {mode: fs.ModeSymlink, link: debian}}, want: []string{debian}},
		"a link to a file":               {files: map[string]imageFile{fedora: {mode: fs.ModeSymlink, link: extracted}, extracted: file}, want: []string{extracted}},
		"a link to nothing":              {files: map[string]imageFile{alpine: {mode: fs.ModeSymlink, link: "/not/there"}}},
		"a directory":                    {files: map[string]imageFile{alpine: {mode: fs.ModeDir}}},
		"a device":                       {files: map[string]imageFile{alpine: {mode: fs.ModeDevice}}},
		"a link to a link":               {files: map[string]imageFile{alpine: {mode: fs.ModeSymlink, link: "/a"}, "/a": {mode: fs.ModeSymlink, link: "/b"}, "/b": file}},
		"a file that is too long":        {files: map[string]imageFile{debian: {size: isolate.MaxBundle + 1}}, err: errdefs.Precondition},
		"a file that ends early":         {files: map[string]imageFile{debian: {size: 100, content: "x"}}, err: errdefs.Unsupported},
		"a daemon that does not say":     {files: map[string]imageFile{debian: {stat: "e"}}, err: errdefs.Unsupported},
		"a daemon that says what is not": {files: map[string]imageFile{debian: {stat: "e30x"}}, err: errdefs.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			found, trusted, err := fileDaemon(t, tt.files).findBundles(t.Context(), "x")
			if !cmp.Equal(found, tt.want) || (err != nil) != (tt.err != 0) || tt.err != errdefs.KindOf(err) {
				t.Errorf("found %q, %v (%v)", found, err, errdefs.KindOf(err))
			}
			if len(found) > 0 && string(trusted) != "roots" {
				t.Errorf("it trusts %q", trusted)
			}
		})
	}
}

// What the sandbox mounts, and its private directories, are not those of the image.
func TestCertificatesAreNotMountedIntoOtherMounts(t *testing.T) {
	found := []string{
		"/etc/ssl/cert.pem", "/own/ca.pem", "/work/ca.pem", "/home/user/ca.pem", "/volume/ca.pem", "/tmp/ca.pem", "/run/ca.pem", "/proc/1/environ", "/sys/x", "/dev/x", "/usr",
	}
	p := &plan{
		spec:   isolate.Spec{Workspace: "/work", Home: "/home/user", Authority: []byte("authority")},
		mounts: []isolate.Mount{{Source: "/x", Target: "/own"}}, volumes: []string{"/volume"},
	}
	if err := p.showCertificates(found, []byte("roots")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/etc/ssl/cert.pem"}; !slices.Equal(p.certificates.bundles, want) {
		t.Errorf("mounted at %q, want %q", p.certificates.bundles, want)
	}
	p.mounts = []isolate.Mount{{Source: "/x", Target: "/etc/ssl"}}
	if err := p.showCertificates(nil, nil); err != nil || len(p.certificates.bundles) > 0 {
		t.Errorf("below a mount: %q, %v", p.certificates.bundles, err)
	}
	targets := p.certificates.targets()
	if len(targets) != 2 || targets[isolate.AuthorityFile] != "ca.pem" || targets[isolate.BundleFile] != "ca-bundle.pem" {
		t.Errorf("mounted at %q", targets)
	}
}

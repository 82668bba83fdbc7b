package harness

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// PackageIndex serves a Python package index on this host, of which the one
// package is the module name with the given source, and returns what pip is told
// as --index-url. It ends with the test.
func PackageIndex(t testing.TB, name, version, source string) string {
	t.Helper()
	wheel := Wheel(t, name, version, source)
	file := fmt.Sprintf("%s-%s-py3-none-any.whl", name, version)
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/"+name+"/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="/%s">%[1]s</a>`, file)
	})
	mux.HandleFunc("/"+file, func(w http.ResponseWriter, _ *http.Request) { w.Write(wheel) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/simple"
}

// Wheel returns the least that pip installs.
func Wheel(t testing.TB, name, version, source string) []byte {
	t.Helper()
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range []struct{ name, content string }{
		{name + ".py", source},
		{info + "METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", name + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A File is an entry of an archive.
type File struct {
	Name, Content string
	Mode          int64 // 0: 0644
}

// Tarball returns a compressed tar archive of files.
func Tarball(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	w := tar.NewWriter(gz)
	for _, f := range files {
		if f.Mode == 0 {
			f.Mode = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.Content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// npmPackage returns the package greeting 1.0.0, as npm packs it.
func npmPackage(t testing.TB) []byte {
	return Tarball(t,
		File{Name: "package/package.json", Content: `{"name": "greeting", "version": "1.0.0", "bin": {"greet": "bin.js"}}`},
		File{Name: "package/index.js", Content: "module.exports = 'hello from npm'\n"},
		File{Name: "package/bin.js", Content: "#!/usr/bin/env node\nconsole.log('hello from bin')\n", Mode: 0o755},
	)
}

// NpmRegistry is what serves that package at an address such as https://example.com.
func NpmRegistry(t testing.TB, address func() string) http.Handler {
	tarball := npmPackage(t)
	sum := sha512.Sum512(tarball)
	mux := http.NewServeMux()
	mux.HandleFunc("/greeting", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{ // the client notices
			"name": "greeting", "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{
				"name": "greeting", "version": "1.0.0", "bin": map[string]string{"greet": "bin.js"},
				"dist": map[string]string{
					"tarball":   address() + "/greeting-1.0.0.tgz",
					"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
				},
			}},
		})
	})
	mux.HandleFunc("/greeting-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { w.Write(tarball) })
	return mux
}

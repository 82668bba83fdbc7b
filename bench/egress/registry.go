package egress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// The packages of the registry.
const (
	packages        = 100
	filesPerPackage = 10
	fileBytes       = 4 << 10
)

// registryPort is where the registry listens, with TLS.
const registryPort = "8443"

const registryURL = "https://" + serverName + ":" + registryPort

// registry serves packages for npm and pip, and writes into dir what makes npm ask for them.
func registry(l net.Listener, dir string) error {
	mux := http.NewServeMux()
	lock := map[string]any{"name": "bench", "version": "1.0.0", "lockfileVersion": 3}
	wants := map[string]string{}
	locked := map[string]any{"": map[string]any{"name": "bench", "version": "1.0.0", "dependencies": wants}}
	var requirements strings.Builder
	for i := range packages {
		name := fmt.Sprintf("bench-%03d", i)
		content := make([]byte, fileBytes)
		for k := range content {
			content[k] = byte(' ' + rand.IntN(64))
		}
		tarball, err := NPMPackage(name, content)
		if err != nil {
			return err
		}
		wheel, err := PythonWheel(strings.ReplaceAll(name, "-", "_"), content)
		if err != nil {
			return err
		}
		sum := sha512.Sum512(tarball)
		wants[name] = "1.0.0"
		locked["node_modules/"+name] = map[string]any{
			"version": "1.0.0", "resolved": registryURL + "/" + name + ".tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}
		file := strings.ReplaceAll(name, "-", "_") + "-1.0.0-py3-none-any.whl"
		fmt.Fprintf(&requirements, "%s==1.0.0\n", name)
		give(mux, "/"+name+".tgz", "application/octet-stream", tarball)
		give(mux, "/"+file, "application/octet-stream", wheel)
		give(mux, "/simple/"+name+"/", "text/html", fmt.Appendf(nil, `<a href="/%s">%[1]s</a>`, file))
	}
	lock["packages"] = locked
	for file, content := range map[string]any{
		"package.json":      map[string]any{"name": "bench", "version": "1.0.0", "dependencies": wants},
		"package-lock.json": lock,
	} {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			return err
		}
	}
	go func() { _ = http.Serve(l, mux) }() // its end is the program's
	return os.WriteFile(filepath.Join(dir, "requirements.txt"), []byte(requirements.String()), 0o644)
}

func give(mux *http.ServeMux, path, kind string, content []byte) {
	mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(content) // the client notices
	})
}

// NPMPackage returns a package for npm with files of that content.
func NPMPackage(name string, content []byte) ([]byte, error) {
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	t := tar.NewWriter(compressed)
	add := func(file string, content []byte) error {
		if err := t.WriteHeader(&tar.Header{Name: "package/" + file, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err := t.Write(content)
		return err
	}
	err := add("package.json", fmt.Appendf(nil, `{"name": %q, "version": "1.0.0"}`, name))
	for i := range filesPerPackage {
		if err == nil {
			err = add(fmt.Sprintf("lib/%d.js", i), content)
		}
	}
	return closed(&b, err, t, compressed)
}

// PythonWheel returns a package for pip with files of that content.
func PythonWheel(name string, content []byte) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	var record strings.Builder
	add := func(file string, content []byte) error {
		fmt.Fprintf(&record, "%s,,\n", file)
		w, err := z.Create(file)
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	info := name + "-1.0.0.dist-info/"
	err := add(info+"METADATA", fmt.Appendf(nil, "Metadata-Version: 2.1\nName: %s\nVersion: 1.0.0\n", name))
	if err == nil {
		err = add(info+"WHEEL", []byte("Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"))
	}
	for i := range filesPerPackage {
		if err == nil {
			err = add(fmt.Sprintf("%s/m%d.py", name, i), append([]byte("# "), content...))
		}
	}
	if err == nil {
		err = add(info+"RECORD", []byte(record.String()))
	}
	return closed(&b, err, z)
}

// closed closes writers in order, and returns what they have written.
func closed(b *bytes.Buffer, err error, writers ...io.Closer) ([]byte, error) {
	for _, w := range writers {
		if err == nil {
			err = w.Close()
		}
	}
	return b.Bytes(), err
}

package harness

import (
	"archive/zip"
	"bytes"
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
	wheel := pureWheel(t, name, version, source)
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

// pureWheel is the least that pip installs.
func pureWheel(t testing.TB, name, version, source string) []byte {
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

package secretproxy

import (
	"errors"
	"io"
	"net/http"

	"github.com/agentfense/agentfense/internal/confine/egress/secret"
)

// maskedWriter sends no header field with a value in it, in interim answers too (103 Early Hints).
type maskedWriter struct {
	http.ResponseWriter

	masker *secret.Masker
}

// WriteHeader masks the header, which is complete by then.
func (w *maskedWriter) WriteHeader(status int) {
	maskHeader(w.masker, w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController, which flushes.
func (w *maskedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// maskedBody masks the trailer at its end, when it is known.
type maskedBody struct {
	io.Reader
	io.Closer

	response *http.Response
	masker   *secret.Masker
}

func (b *maskedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		maskHeader(b.masker, b.response.Trailer)
	}
	return n, err
}

// maskHeader masks the values of fields, and drops a field with a secret in its name.
func maskHeader(m *secret.Masker, h http.Header) {
	for name, values := range h {
		if m.Text(name) != name {
			delete(h, name)
			continue
		}
		for i := range values {
			values[i] = m.Text(values[i])
		}
	}
}

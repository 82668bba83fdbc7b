package isolate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Where programs inside find the certificate of Spec.Authority, alone and with those that the
// system inside trusts.
const (
	CertificatesDir = NotesDir
	AuthorityFile   = CertificatesDir + "/" + authorityName
	BundleFile      = CertificatesDir + "/" + bundleName

	authorityName = "ca.pem"
	bundleName    = "ca-bundle.pem"
)

// Bundles are the files in which systems keep the certificates that they trust
// (crypto/x509/root_linux.go of Go).
var Bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// MaxBundle is how much is read of a file of certificates, in bytes.
const MaxBundle = 16 << 20

// ReadBundle reads a file of certificates of this host; nil if it is absent or not for everyone.
// Errors: Precondition.
func ReadBundle(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err == nil {
		defer f.Close()
		var content []byte
		if content, err = io.ReadAll(io.LimitReader(f, MaxBundle)); err == nil {
			return content, nil
		}
	}
	if failure, is := errors.AsType[*fs.PathError](err); is {
		err = failure.Err
	}
	return nil, errdefs.New(errdefs.Precondition, "read %s: %w", path, err)
}

// CertificateFiles returns the files of CertificatesDir by name. trusted is what the system inside
// trusts, in PEM.
func (s *Spec) CertificateFiles(trusted []byte) map[string][]byte {
	bundle := slices.Concat(trusted, []byte("\n"), s.Authority)
	return map[string][]byte{authorityName: s.Authority, bundleName: bundle}
}

// CertificateVariables are the variables by which programs inside find them: those of which a
// program trusts nothing else name the bundle.
var CertificateVariables = []string{
	"SSL_CERT_FILE=" + BundleFile,                    // OpenSSL and what follows it: Go, Ruby, uv
	"CURL_CA_BUNDLE=" + BundleFile,                   // curl
	"REQUESTS_CA_BUNDLE=" + BundleFile,               // Python's requests
	"PIP_CERT=" + BundleFile,                         // pip
	"AWS_CA_BUNDLE=" + BundleFile,                    // botocore
	"GIT_SSL_CAINFO=" + BundleFile,                   // git
	"CARGO_HTTP_CAINFO=" + BundleFile,                // cargo
	"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=" + BundleFile, // gRPC
	"CODEX_CA_CERTIFICATE=" + AuthorityFile,          // Codex
	"NODE_EXTRA_CA_CERTS=" + AuthorityFile,           // Node.js
	"DENO_CERT=" + AuthorityFile,                     // Deno
}

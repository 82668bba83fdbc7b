package script_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// TestRemoteStories runs the stories of the command line on a server. Their own
// commands, besides those of TestServeStories:
//
//	client                              from now on agentfense is another user's, with the server's token
//	certificate NAME [AUTHORITY] [CN]   make NAME.pem and NAME.key, signed by an authority's or, without
//	                                    one, an authority; they are for localhost and 127.0.0.1
//	exit CODE COMMAND [ARG...]          run a command that ends with the code
func TestRemoteStories(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	run(t, "testdata/remote")
}

func init() {
	serverCommands["client"] = cmdClient
	serverCommands["certificate"] = cmdCertificate
	serverCommands["exit"] = cmdExit
}

// exitLimit bounds a command that is to fail.
const exitLimit = 30 * time.Second

// cmdExit runs a command like exec. A remote verb has to fail in a bounded time.
func cmdExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE COMMAND [ARG...]")
	}
	began := time.Now()
	err := ts.Exec(args[1], args[2:]...)
	if code := exitCodeOf(err); strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
	if took := time.Since(began); took > exitLimit {
		ts.Fatalf("it took %s", took)
	}
}

// exitCodeOf is the code of a command that ended with err, -1 if it did not end
// by itself.
func exitCodeOf(err error) int {
	if err == nil {
		return 0
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// cmdClient gives the script a state directory of its own: what the server has
// in its one is not found there.
func cmdClient(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: client")
	}
	ts.Setenv("SERVER_HOME", ts.Getenv("AGENTFENSE_HOME"))
	ts.Setenv("AGENTFENSE_HOME", ts.MkAbs(".client"))
	ts.Setenv("AGENTFENSE_ENDPOINT", ts.Getenv("GRPC"))
	ts.Setenv("AGENTFENSE_TOKEN", ts.Getenv("TOKEN"))
}

func cmdCertificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 3 {
		ts.Fatalf("usage: certificate NAME [AUTHORITY] [CN]")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	ts.Check(err)
	made := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: args[0]},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: len(args) == 1, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	by, byKey := made, key
	if len(args) > 1 {
		made.DNSNames, made.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
		by, byKey = readAuthority(ts, args[1])
	}
	if len(args) > 2 {
		made.Subject.CommonName = args[2]
	}
	der, err := x509.CreateCertificate(rand.Reader, made, by, key.Public(), byKey)
	ts.Check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	writePEM(ts, args[0]+".pem", "CERTIFICATE", der)
	writePEM(ts, args[0]+".key", "PRIVATE KEY", keyDER)
}

func readAuthority(ts *testscript.TestScript, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	der := func(file string) []byte {
		block, _ := pem.Decode([]byte(ts.ReadFile(file)))
		return block.Bytes
	}
	cert, err := x509.ParseCertificate(der(name + ".pem"))
	ts.Check(err)
	key, err := x509.ParsePKCS8PrivateKey(der(name + ".key"))
	ts.Check(err)
	return cert, key.(*ecdsa.PrivateKey)
}

func writePEM(ts *testscript.TestScript, file, kind string, der []byte) {
	var text strings.Builder
	ts.Check(pem.Encode(&text, &pem.Block{Type: kind, Bytes: der}))
	ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text.String()), 0o600))
}

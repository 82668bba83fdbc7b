package attest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// keys is a directory with keys of ssh: "key", "other" and the authority "ca", and "cert", which is
// "key" with a certificate of the authority for alice and carol.
type keys struct {
	t   *testing.T
	dir string
}

func newKeys(t *testing.T) keys {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("needs ssh-keygen")
	}
	k := keys{t, t.TempDir()}
	for _, name := range []string{"key", "other", "ca"} {
		k.keygen("-q", "-t", "ed25519", "-N", "", "-C", name, "-f", k.path(name))
	}
	for _, suffix := range []string{"", ".pub"} {
		k.write("cert"+suffix, k.read("key"+suffix))
	}
	if err := os.Chmod(k.path("cert"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.keygen("-q", "-s", k.path("ca"), "-I", "id", "-n", "alice,carol", k.path("cert.pub"))
	return k
}

func (k keys) path(name string) string { return filepath.Join(k.dir, name) }

func (k keys) keygen(args ...string) {
	k.t.Helper()
	if out, err := exec.Command("ssh-keygen", args...).CombinedOutput(); err != nil {
		k.t.Fatalf("ssh-keygen %q: %v: %s", args, err, out)
	}
}

func (k keys) read(name string) string {
	k.t.Helper()
	text, err := os.ReadFile(k.path(name))
	if err != nil {
		k.t.Fatal(err)
	}
	return string(text)
}

func (k keys) write(name, text string) string {
	k.t.Helper()
	if err := os.WriteFile(k.path(name), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
	return k.path(name)
}

func (k keys) sign(text, key string) []byte {
	k.t.Helper()
	signature, err := Sign(k.t.Context(), []byte(text), k.path(key))
	if err != nil {
		k.t.Fatal(err)
	}
	return signature
}

// allow writes a file of allowed signers. NAME.pub in a line stands for that public key.
func (k keys) allow(lines ...string) string {
	k.t.Helper()
	text := strings.Join(lines, "\n") + "\n"
	for _, name := range []string{"key", "other", "ca"} {
		text = strings.ReplaceAll(text, name+".pub", strings.TrimSpace(k.read(name+".pub")))
	}
	return k.write("signers", text)
}

const signedText = "{}\n"

func TestOnlyAllowedSignersCount(t *testing.T) {
	k := newKeys(t)
	byKey, byCert := k.sign(signedText, "key"), k.sign(signedText, "cert-cert.pub")
	for _, tt := range []struct {
		name      string
		signature []byte
		allowed   []string
		only      string
		want      string // the signer, or after "!" what the error has
	}{
		{"an allowed signer", byKey, []string{"alice key.pub"}, "", "alice"},
		{"the only one", byKey, []string{"alice key.pub"}, "alice", "alice"},
		{"the key of another", byKey, []string{"alice other.pub"}, "", "!of no signer"},
		{"the key of another under the name", byKey, []string{"alice other.pub", "bob key.pub"}, "alice", `!not of "alice", but of "bob"`},
		{"one of several names", byKey, []string{"alice,bob key.pub"}, "bob", "bob"},
		{"a name by a pattern", byKey, []string{"*@example.com key.pub"}, "alice@example.com", "alice@example.com"},
		{"a pattern for a name", byKey, []string{"alice key.pub"}, "*", `!not of "*"`},
		{"a name that is taken out of a pattern", byKey, []string{"*,!bob key.pub"}, "bob", `!not of "bob"`},
		{"our namespace", byKey, []string{`alice namespaces="git,agentfense-attest" key.pub`}, "", "alice"},
		{"another namespace", byKey, []string{`alice namespaces="git" key.pub`}, "", "!not permitted for use in signature namespace"},
		{"the second line of a key", byKey, []string{`alice namespaces="git" key.pub`, "bob key.pub"}, "bob", "bob"},
		{"a key not any more", byKey, []string{`alice valid-before="20200101" key.pub`}, "alice", "!key has expired"},
		{"a key not yet", byKey, []string{`alice valid-after="29990101" key.pub`}, "alice", "!not yet valid"},
		{"a key that is valid now", byKey, []string{`alice valid-after="20200101",valid-before="29990101" key.pub`}, "alice", "alice"},
		{"a key as an authority", byKey, []string{"alice cert-authority key.pub"}, "", "!of no signer"},
		{"a certificate", byCert, []string{"* cert-authority ca.pub"}, "carol", "carol"},
		{"a name that the certificate lacks", byCert, []string{"* cert-authority ca.pub"}, "dave", `!not of "dave"`},
		{"a name that the authority may not give", byCert, []string{"bob cert-authority ca.pub"}, "", "!of no signer"},
		{"a certificate of a key that is no authority", byCert, []string{"alice ca.pub"}, "", "!of no signer"},
		{"a signature for another purpose", []byte(k.signFor("git")), []string{"alice key.pub"}, "", "!namespace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Signers{Allowed: k.allow(tt.allowed...), Only: tt.only}
			got, err := s.Check(t.Context(), []byte(signedText), tt.signature)
			wantSigner(t, tt.want, got, err)
		})
	}
}

func (k keys) signFor(namespace string) string {
	k.t.Helper()
	k.write("text", signedText)
	k.keygen("-q", "-Y", "sign", "-n", namespace, "-f", k.path("key"), k.path("text"))
	return k.read("text.sig")
}

func wantSigner(t *testing.T, want, got string, err error) {
	t.Helper()
	if text, fails := strings.CutPrefix(want, "!"); fails {
		if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), text) {
			t.Errorf("got %q, %v; want Precondition with %q", got, err, text)
		}
	} else if err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// A revoked key does not count, whether it is listed as it is, in a KRL, or as an authority.
func TestRevokedKeysDoNotCount(t *testing.T) {
	k := newKeys(t)
	byKey, byCert := k.sign(signedText, "key"), k.sign(signedText, "cert-cert.pub")
	allowed := k.allow("alice key.pub", "* cert-authority ca.pub")
	k.keygen("-q", "-k", "-f", k.path("krl"), k.path("key.pub"))
	for _, tt := range []struct {
		name, revoked string
		signature     []byte
		only, want    string
	}{
		{"another key", k.path("other.pub"), byKey, "alice", "alice"},
		{"the key", k.path("key.pub"), byKey, "", "!its key is revoked"},
		{"the key of the only signer", k.path("key.pub"), byKey, "alice", "!its key is revoked"},
		{"the key in a KRL", k.path("krl"), byKey, "", "!its key is revoked"},
		{"the key of a certificate", k.path("key.pub"), byCert, "carol", "!its key is revoked"},
		{"an authority", k.path("ca.pub"), byCert, "carol", "!its key is revoked"},
		{"no list of keys", k.write("junk", "junk\n"), byKey, "", "!this file is malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Signers{Allowed: allowed, Revoked: tt.revoked, Only: tt.only}
			got, err := s.Check(t.Context(), []byte(signedText), tt.signature)
			wantSigner(t, tt.want, got, err)
		})
	}
	s := Signers{Allowed: allowed, Revoked: k.path("no-such")}
	if _, err := s.Check(t.Context(), []byte(signedText), byKey); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("no such file: %v, want NotFound", err)
	}
}

// The files that git uses count, also where the user's configuration includes another.
func TestTheFilesThatGitUsesCount(t *testing.T) {
	k := newKeys(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	k.write("included", "[gpg \"ssh\"]\n\tallowedSignersFile = "+k.path("signers")+"\n\trevocationFile = "+k.path("key.pub")+"\n")
	t.Setenv("GIT_CONFIG_GLOBAL", k.write("gitconfig", "[include]\n\tpath = included\n"))
	k.allow("alice key.pub")
	var s Signers
	if err := s.FromGit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Check(t.Context(), []byte(signedText), k.sign(signedText, "key"))
	wantSigner(t, "!its key is revoked", "", err)
}

// A byte of the text or of the signature that is altered fails.
func TestAnyChangedByteOfWhatIsSignedIsFound(t *testing.T) {
	k := newKeys(t)
	text := example(t)
	signature := k.sign(string(text), "key")
	s := Signers{Allowed: k.allow("alice key.pub")}
	check := func(text, signature []byte) error {
		_, err := s.Check(t.Context(), text, signature)
		return err
	}
	if err := check(text, signature); err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(signature, []byte("\n"))
	whole := len(bytes.Join(lines[:len(lines)-3], nil)) // the last line may have bits without a meaning
	for _, part := range []struct {
		what string
		of   []byte
		size int
	}{{"text", text, len(text)}, {"signature", signature, whole}} {
		for i := 0; i < part.size; i += part.size/20 + 1 {
			if part.of[i] == '\n' && part.what == "signature" {
				continue
			}
			data := bytes.Clone(part.of)
			data[i] ^= 1
			err := check(data, signature)
			if part.what == "signature" {
				err = check(text, data)
			}
			if !errdefs.Is(err, errdefs.Precondition) {
				t.Errorf("%s with byte %d changed: %v, want Precondition", part.what, i, err)
			}
		}
	}
	if err := check(append(bytes.Clone(text), '\n'), signature); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("a text that goes on: %v, want Precondition", err)
	}
}

// A key that an agent should have is missed before anything is applied.
func TestAKeyOfAnAgentIsLookedFor(t *testing.T) {
	k := newKeys(t)
	t.Setenv("SSH_AUTH_SOCK", k.path("no-agent"))
	if _, err := exec.LookPath("ssh-add"); err != nil {
		t.Skip("needs ssh-add")
	}
	k.write("alone.pub", k.read("other.pub"))
	for key, want := range map[string]errdefs.Kind{
		k.path("alone"): errdefs.Precondition, k.path("alone.pub"): errdefs.Precondition, k.read("other.pub"): errdefs.Precondition,
		"key::" + k.read("other.pub"): errdefs.Precondition, k.path("no-such"): errdefs.NotFound,
	} {
		if err := CheckKey(t.Context(), key); !errdefs.Is(err, want) {
			t.Errorf("%s: %v, want %v", key, err, want)
		}
	}
	for _, key := range []string{"key", "key.pub", "cert-cert.pub"} {
		if err := CheckKey(t.Context(), k.path(key)); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

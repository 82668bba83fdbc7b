package attest

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Signers says whose signatures count.
type Signers struct {
	Allowed string // file of allowed signers, as ssh-keygen(1) describes it
	Revoked string // file of revoked keys, or a KRL; "" for none
	Only    string // the only signer that counts; "" for all
}

// FromGit sets the files that are not set to those that git uses. Only the user's configuration of
// git is read, not a repository's. Errors: NotFound if there is no file of allowed signers.
func (s *Signers) FromGit(ctx context.Context) error {
	if s.Revoked == "" {
		s.Revoked, _ = gitConfig(ctx, "gpg.ssh.revocationFile")
	}
	if s.Allowed != "" {
		return nil
	}
	if file, ok := gitConfig(ctx, "gpg.ssh.allowedSignersFile"); ok {
		s.Allowed = file
		return nil
	}
	return errdefs.New(errdefs.NotFound, "no file of allowed signers: give one with --allowed-signers; a line of it is a name and a public key, such as: alice@example.com ssh-ed25519 AAAA…")
}

// Check returns the signer of the text. It must be allowed for our namespace, now, and the key must
// not be revoked. Errors: NotFound if a file does not exist; Precondition if no signer that counts
// has signed the text; Unsupported.
func (s *Signers) Check(ctx context.Context, text, signature []byte) (string, error) {
	for _, file := range []struct{ what, name string }{{"allowed signers", s.Allowed}, {"revoked keys", s.Revoked}} {
		if file.name == "" {
			continue
		}
		if _, err := os.Stat(file.name); err != nil {
			return "", errdefs.New(errdefs.NotFound, "file of %s %s: %w", file.what, vpath.Escape(file.name), errors.Unwrap(err))
		}
	}
	file, remove, err := tempFile(signature)
	if err != nil {
		return "", err
	}
	defer remove()
	found, err := keygen(ctx, nil, "-Y", "find-principals", "-s", file, "-f", s.Allowed)
	if err != nil {
		return "", errdefs.New(errdefs.KindOf(err), "the signature is of no signer in %s: %w", vpath.Escape(s.Allowed), err)
	}
	signers := strings.Split(strings.TrimSpace(string(found)), "\n")
	if s.Only != "" {
		return s.Only, s.checkOnly(ctx, text, file, signers)
	}
	for _, signer := range signers {
		if err = s.verify(ctx, text, file, signer); err == nil {
			return signer, nil
		}
	}
	return "", err
}

// checkOnly checks the signature as one of the only signer that counts. It may be found as another
// one: by a pattern, or by the first of several lines with its key.
func (s *Signers) checkOnly(ctx context.Context, text []byte, file string, found []string) error {
	err := s.verify(ctx, text, file, s.Only)
	if err == nil || errors.Is(err, errRevoked) || slices.Contains(found, s.Only) {
		return err
	}
	return errdefs.New(errdefs.Precondition, "the signature is not of %s, but of %s", vpath.Quote(s.Only), vpath.Quote(strings.Join(found, ", ")))
}

// errRevoked is the cause where a signature is good, and its key does not count any more.
var errRevoked = errors.New("its key is revoked")

// verify checks the signature in the file as one of the signer.
func (s *Signers) verify(ctx context.Context, text []byte, file, signer string) error {
	args := []string{"-Y", "verify", "-f", s.Allowed, "-I", signer, "-n", Namespace, "-s", file}
	_, err := keygen(ctx, text, args...)
	if err != nil || s.Revoked == "" {
		return err
	}
	// Only a second call tells a revoked key from a bad signature.
	if _, err := keygen(ctx, text, append(args, "-r", s.Revoked)...); err != nil {
		return errdefs.New(errdefs.KindOf(err), "the signature is good, but %w by %s, or this file is malformed (%v)", errRevoked, vpath.Escape(s.Revoked), err)
	}
	return nil
}

package attest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Namespace is the namespace of our signatures, as in ssh-keygen(1): a signature for another
// purpose is none of a statement.
const Namespace = "agentfense-attest"

// SignatureSuffix is added to the name of the statement's file.
const SignatureSuffix = ".sig"

// keygen runs ssh-keygen. Errors: Unsupported if this host has none, Precondition with what it
// said.
func keygen(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "ssh-keygen", args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &said
	err := cmd.Run()
	switch {
	case err == nil:
		return out.Bytes(), nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, errdefs.New(errdefs.Unsupported, "ssh-keygen is not installed; it comes with OpenSSH 8.1 or later")
	}
	lines := strings.Split(strings.TrimSpace(said.String()+out.String()), "\n")
	if lines[0] == "" {
		return nil, errdefs.New(errdefs.Precondition, "ssh-keygen: %w", err)
	}
	for i, line := range lines {
		lines[i] = vpath.Escape(strings.TrimRight(line, "\r"))
	}
	return nil, errdefs.New(errdefs.Precondition, "ssh-keygen: %s", strings.Join(lines, "; "))
}

// Sign returns the signature of the text with the key in the file, a private key, or a public one
// whose private key the agent of ssh has. ssh-keygen asks for a passphrase on the terminal.
// Errors: Unsupported, Precondition.
func Sign(ctx context.Context, text []byte, key string) ([]byte, error) {
	if public, is := isPublicKey(key); is {
		file, remove, err := tempFile([]byte(public + "\n"))
		if err != nil {
			return nil, err
		}
		defer remove()
		key = file
	}
	return keygen(ctx, text, "-Y", "sign", "-q", "-f", key, "-n", Namespace)
}

// tempFile writes a file for ssh-keygen, until remove. Errors: Exhausted, Denied, Internal.
func tempFile(text []byte) (name string, remove func(), err error) {
	f, err := os.CreateTemp("", "agentfense-")
	if err == nil {
		_, err = f.Write(text)
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		return "", nil, errdefs.New(safefs.Kind(err), "%w", err)
	}
	return f.Name(), func() { _ = os.Remove(f.Name()) }, nil
}

// isPublicKey reports whether key is no file but a public key, as user.signingKey of git may be.
func isPublicKey(key string) (public string, is bool) {
	if public, is = strings.CutPrefix(key, "key::"); is {
		return public, true
	}
	return key, strings.HasPrefix(key, "ssh-") && strings.ContainsRune(key, ' ')
}

// CheckKey checks that there is a key of that name: the key itself, or its public half if an agent
// has the key. It cannot tell whether a passphrase will be right. Errors: NotFound; Precondition if
// no agent has the key.
func CheckKey(ctx context.Context, key string) error {
	public, is := isPublicKey(key)
	if !is {
		var err error
		if public, err = readKey(key); err != nil {
			return err
		}
		for _, suffix := range []string{"-cert.pub", ".pub"} {
			if private, is := strings.CutSuffix(key, suffix); is && exists(private) {
				return nil
			}
		}
	}
	fields := strings.Fields(public)
	if len(fields) < 2 || !slices.ContainsFunc([]string{"ssh-", "ecdsa-", "sk-"}, func(kind string) bool { return strings.HasPrefix(fields[0], kind) }) {
		return nil // a private key
	}
	if strings.Contains(fields[0], "-cert-") {
		return nil // the agent may list the key without its certificate
	}
	list, err := exec.CommandContext(ctx, "ssh-add", "-L").Output()
	if errors.Is(err, exec.ErrNotFound) || strings.Contains(string(list), fields[1]) {
		return nil
	}
	return errdefs.New(errdefs.Precondition, "key %s: it is a public key, and no agent of ssh has the private one: add that with ssh-add, or give another one with --attest-key", vpath.Escape(key))
}

// readKey reads a file of a key, or of its public half. Errors: NotFound, Denied, Invalid.
func readKey(key string) (string, error) {
	for _, file := range []string{key, key + ".pub"} {
		if exists(file) {
			text, err := safefs.ReadNamed(file, maxSignature)
			return string(text), err
		}
	}
	return "", errdefs.New(errdefs.NotFound, "key %s: no such file: give another one with --attest-key", vpath.Escape(key))
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// FindKey returns the key with which git signs in ssh's format, else ~/.ssh/id_ed25519 if it is
// there. Only the user's configuration of git is read, not a repository's. Errors: NotFound.
func FindKey(ctx context.Context, home string) (string, error) {
	if format, _ := gitConfig(ctx, "gpg.format"); format == "ssh" {
		if key, ok := gitConfig(ctx, "user.signingKey"); ok {
			return key, nil
		}
	}
	key := filepath.Join(home, ".ssh", "id_ed25519")
	if home != "" && (exists(key) || exists(key+".pub")) {
		return key, nil
	}
	return "", errdefs.New(errdefs.NotFound, "no key to sign with: give one with --attest-key, or make one: ssh-keygen -t ed25519")
}

// gitConfig returns a path or a word of the user's configuration of git.
func gitConfig(ctx context.Context, key string) (string, bool) {
	out, err := exec.CommandContext(ctx, "git", "config", "--global", "--includes", "--type=path", "--get", key).Output()
	text := strings.TrimSuffix(string(out), "\n")
	return text, err == nil && text != ""
}

package secret

import (
	"crypto/rand"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// prefixes are how keys of well-known services begin, the longer before the shorter: programs look
// at them, and they tell nothing.
var prefixes = []string{
	"sk-ant-api03-", "sk-ant-oat01-", "sk-ant-", "sk-proj-", "sk-svcacct-", "sk-or-v1-", "sk-",
	"github_pat_", "ghp_", "gho_", "ghs_", "ghu_", "glpat-", "xoxb-", "xoxp-", "AIza", "hf_", "npm_", "pypi-", "gsk_", "xai-",
}

// Alphabets of values. 22 characters of the first, and 32 of the second, have 128 random bits.
const (
	letters    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	minLetters = 22
	hexDigits  = "0123456789abcdef"
	minHex     = 32
)

// lengthClass is what the length of a placeholder is rounded up to, for values that are of no
// well-known form: the length of a password is not told.
const lengthClass = 16

// NewPlaceholder makes what stands for a value: random, but of the same form.
func NewPlaceholder(value string) string {
	prefix := ""
	for _, p := range prefixes {
		if strings.HasPrefix(value, p) {
			prefix = p
			break
		}
	}
	rest := value[len(prefix):]
	alphabet, size := letters, max(len(rest), minLetters)
	if strings.Trim(rest, hexDigits) == "" {
		alphabet, size = hexDigits, max(len(rest), minHex)
	}
	if prefix == "" {
		size = (size + lengthClass - 1) / lengthClass * lengthClass
	}
	return prefix + random(alphabet, min(size, maxPlaceholder))
}

const maxPlaceholder = 512

// random returns characters of an alphabet, each as likely as the others.
func random(alphabet string, size int) string {
	var text strings.Builder
	most := byte(256/len(alphabet)*len(alphabet) - 1)
	for text.Len() < size {
		var b [64]byte
		rand.Read(b[:]) // it never fails
		for _, c := range b {
			if c <= most && text.Len() < size {
				text.WriteByte(alphabet[int(c)%len(alphabet)])
			}
		}
	}
	return text.String()
}

// Bounds of a value in bytes. A shorter one would be masked where it is not meant, and guessed.
const (
	MinValue = 8
	maxValue = 8 << 10
)

// CheckValue refuses a value that cannot be in a header of HTTP, or that is too short or too long.
// The error does not tell it. Errors: Invalid.
func CheckValue(name, value string) error {
	switch {
	case len(value) < MinValue || len(value) > maxValue:
		return errdefs.New(errdefs.Invalid, "secret %s: its value has %d bytes; want %d to %d", name, len(value), MinValue, maxValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errdefs.New(errdefs.Invalid, "secret %s: its value has a space, a line break or a character that is not ASCII", name)
	}
	return nil
}

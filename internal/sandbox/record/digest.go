package record

import (
	"crypto/sha256"
	"encoding/hex"
)

// IsDigest reports whether text has the form of a digest.
func IsDigest(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == text
}

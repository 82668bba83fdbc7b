package layer

import (
	"crypto/sha256"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// inLog stands in a record whose content is in the log; no file in base/ has
// that name. Longer contents are files of their own: they would make reading
// the log slow.
const (
	inLog    = "log"
	inLogMax = 64 << 10
)

type sha256Sum = [sha256.Size]byte

// escapeContent writes a content on one line. Zeros are escaped too, so that a
// line with a zero is one that a crash damaged.
func escapeContent(content []byte) []byte {
	text := make([]byte, 0, len(content)+len(content)/8)
	for _, c := range content {
		switch c {
		case '\\':
			text = append(text, '\\', '\\')
		case '\n':
			text = append(text, '\\', 'n')
		case 0:
			text = append(text, '\\', '0')
		default:
			text = append(text, c)
		}
	}
	return text
}

var contentUnescaper = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\0`, "\x00")

// loggedContent returns the content of b as a file of its own. Errors: EIO if
// it was damaged.
func (s *Stack) loggedContent(b *Base) (*os.File, error) {
	fd, err := openat2(s.home, journalName, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	line, err := readRange(fd, b.at)
	if err != nil {
		return nil, err
	}
	r, ok := parseRecord(line)
	content := []byte(contentUnescaper.Replace(string(r.text)))
	if !ok || sha256Sum(b.SHA256) != sha256.Sum256(content) {
		return nil, unix.EIO
	}
	return memoryFile(content)
}

// memoryFile returns a file with the content, to be read from its beginning.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("content", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := writeAll(fd, content, 0); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return asOS(fd, "recorded content"), nil
}

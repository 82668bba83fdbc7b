package journal

import (
	"crypto/sha256"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// InlineMax is the size of the longest content that goes into the log, in bytes.
// Longer contents would make reading the log slow, so that each becomes a file.
const InlineMax = 64 << 10

// inline is the CONTENT of a record whose content is in the log. No file in base/
// has that name.
const inline = "log"

type sha256Sum = [sha256.Size]byte

// escapeContent writes a content on one line. It escapes zeros too, so that every
// line with a zero was damaged by a crash.
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

// inlineContent returns the content of b as a file of its own. Errors: EIO if
// it was damaged.
func (j *Journal) inlineContent(b *Base) (*os.File, error) {
	line, err := j.readSpan(b.at)
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

// readSpan reads a range of a log. Errors: EIO if the segment is not there any more.
func (j *Journal) readSpan(at Span) ([]byte, error) {
	j.mu.Lock()
	home, ok := j.homesLocked()[at.segment]
	j.mu.Unlock()
	if !ok {
		return nil, unix.EIO
	}
	fd, err := openFile(home, logName, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return safefs.ReadRange(fd, at.off, at.len)
}

// memoryFile returns a file with the content, to be read from its beginning.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("content", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := safefs.WriteAll(fd, content, 0); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "recorded content"), nil
}

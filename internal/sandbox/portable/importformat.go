package portable

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// recognized are formats of files that people try to import, by what they have at an offset. The
// first one that matches counts.
var recognized = []struct {
	offset      int
	magic, name string
}{
	{0, "oci-layout\x00", "an image in the OCI layout"},
	{257, "ustar", "a tar archive"},
	{0, "diff --git ", "a patch"},
	{0, "\x1f\x8b", "a file compressed with gzip"},
	{0, "\x28\xb5\x2f\xfd", "a file compressed with zstd"},
	{0, "PK\x03\x04", "a zip archive"},
}

// checkIsDatabase refuses the copy of a file that does not begin as an SQLite database does. It
// names the format, if it is known. An empty file is the beginning of a database. Errors: Invalid.
func checkIsDatabase(file, copied string) error {
	f, err := os.Open(copied)
	if err != nil {
		return failedImport(file, err)
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	head = head[:n]
	switch {
	case errors.Is(err, io.EOF), bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return failedImport(file, err)
	}
	is := "it is not a database"
	for _, r := range recognized {
		if n >= r.offset && bytes.HasPrefix(head[r.offset:], []byte(r.magic)) {
			is = "it is " + r.name
			break
		}
	}
	return errdefs.New(errdefs.Invalid, "import %s: %s; import reads only databases of AgentFS, such as an export in the format agentfs writes", vpath.Quote(file), is)
}

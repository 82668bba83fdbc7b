// Package fdmessage sends JSON messages, and file descriptors with them, over Unix stream sockets.
// Each message is behind its length, 4 bytes in big-endian order. The descriptors are attached to
// the first of these bytes.
package fdmessage

import (
	"encoding/binary"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Format is what messages of one kind may have.
type Format struct {
	Name     string // begins errors
	MaxBytes int
	MaxFiles int // with 0, the kernel closes what arrives
}

const (
	headerBytes = 4
	// atOnce is how much of a message is sent with its length. A receiver that waits is then woken
	// once for most messages.
	atOnce = 16 << 10
)

// Send sends one message, with descriptors. Errors: Internal; Invalid, for one that is too long;
// those of the connection.
func (f Format) Send(c *net.UnixConn, message any, files ...*os.File) error {
	body, err := marshal(message)
	if err != nil {
		return errdefs.New(errdefs.Internal, "%s: %w", f.Name, err)
	}
	if err := f.checkSize(len(body)); err != nil {
		return err
	}
	withHeader := min(len(body), atOnce)
	first := binary.BigEndian.AppendUint32(make([]byte, 0, headerBytes+withHeader), uint32(len(body)))
	first = append(first, body[:withHeader]...)
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.WriteMsgUnix(first, rights, nil)
	for _, rest := range [][]byte{first[n:], body[withHeader:]} {
		if err == nil && len(rest) > 0 {
			_, err = c.Write(rest)
		}
	}
	return err
}

// SendText sends text in place of JSON, without descriptors, for a receiver that expects it.
func (f Format) SendText(c *net.UnixConn, text []byte) error {
	if err := f.checkSize(len(text)); err != nil {
		return err
	}
	message := binary.BigEndian.AppendUint32(make([]byte, 0, headerBytes+len(text)), uint32(len(text)))
	_, err := c.Write(append(message, text...))
	return err
}

// ReceiveText reads what SendText has sent. Errors: as Receive.
func (f Format) ReceiveText(from io.Reader) ([]byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(header[:]))
	if err := f.checkSize(size); err != nil {
		return nil, err
	}
	text := make([]byte, size)
	_, err := io.ReadFull(from, text)
	return text, err
}

// Receive reads one message into message and returns the descriptors that came with it,
// close-on-exec (net asks for MSG_CMSG_CLOEXEC). The caller closes them, also after an error.
// Errors: io.EOF before a message; Invalid; those of the connection.
func (f Format) Receive(c *net.UnixConn, message any) ([]*os.File, error) {
	var header [headerBytes]byte
	var oob []byte
	if f.MaxFiles > 0 {
		oob = make([]byte, unix.CmsgSpace(f.MaxFiles*4))
	}
	n, oobn, flags, _, err := c.ReadMsgUnix(header[:], oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	files, err := f.files(oob[:oobn])
	if err != nil {
		return files, err
	}
	if flags&unix.MSG_CTRUNC != 0 && f.MaxFiles > 0 {
		return files, errdefs.New(errdefs.Invalid, "%s: more than %d descriptors", f.Name, f.MaxFiles)
	}
	if _, err := io.ReadFull(c, header[n:]); err != nil {
		return files, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if err := f.checkSize(int(size)); err != nil {
		return files, err
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		return files, err
	}
	if err := unmarshal(body, message); err != nil {
		return files, errdefs.New(errdefs.Invalid, "%s: %w", f.Name, err)
	}
	return files, nil
}

func (f Format) checkSize(n int) error {
	if n > f.MaxBytes {
		return errdefs.New(errdefs.Invalid, "%s: %d bytes is more than %d", f.Name, n, f.MaxBytes)
	}
	return nil
}

func (f Format) files(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "%s: %w", f.Name, err)
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

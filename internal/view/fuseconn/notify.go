package fuseconn

import (
	"encoding/binary"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Codes of notifications (enum fuse_notify_code in linux/fuse.h).
const (
	notifyInode = 2
	notifyEntry = 3
	notifyStore = 4
)

// Before it answers a notification, the kernel may wait for a directory or a page that a
// request holds, and so for the handler of that request. Therefore no handler may wait for
// a notification, and no notification may be sent with a lock held that a handler takes. An
// InodeNotify of attributes alone waits for nobody.

// InodeNotify makes the kernel drop the attributes of a node, and its pages of length bytes
// from offset. Length 0 means to the end, a negative offset no pages. Errors: ENOENT if the
// kernel does not know the node.
func (c *Conn) InodeNotify(node uint64, offset, length int64) fuse.Status {
	b := make([]byte, 0, 24)
	b = binary.NativeEndian.AppendUint64(b, node)
	b = binary.NativeEndian.AppendUint64(b, uint64(offset))
	b = binary.NativeEndian.AppendUint64(b, uint64(length))
	return c.notify(notifyInode, b, nil)
}

// EntryNotify makes the kernel forget name in the directory parent, as present or absent.
// Errors: ENOENT if the kernel does not know parent or name.
func (c *Conn) EntryNotify(parent uint64, name string) fuse.Status {
	b := make([]byte, 0, 16+len(name)+1)
	b = binary.NativeEndian.AppendUint64(b, parent)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(name)))
	b = binary.NativeEndian.AppendUint32(b, 0) // flags
	b = append(append(b, name...), 0)
	return c.notify(notifyEntry, b, nil)
}

// InodeNotifyStoreCache puts data into the pages of a node at offset, in bytes. Errors:
// ENOENT if the kernel does not know the node; EFAULT if data became unreadable during the
// call.
func (c *Conn) InodeNotifyStoreCache(node uint64, offset int64, data []byte) fuse.Status {
	b := make([]byte, 0, 24)
	b = binary.NativeEndian.AppendUint64(b, node)
	b = binary.NativeEndian.AppendUint64(b, uint64(offset))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(data)))
	b = binary.NativeEndian.AppendUint32(b, 0) // padding
	return c.notify(notifyStore, b, data)
}

// notify sends one notification: a header with request number 0, the fields, the data.
func (c *Conn) notify(code uint32, fields, data []byte) fuse.Status {
	header := make([]byte, 0, outHeader)
	header = binary.NativeEndian.AppendUint32(header, uint32(outHeader+len(fields)+len(data)))
	header = binary.NativeEndian.AppendUint32(header, code)
	header = binary.NativeEndian.AppendUint64(header, 0)
	for {
		_, err := unix.Writev(c.fd, [][]byte{header, fields, data})
		if err != unix.EINTR {
			return fuse.ToStatus(err)
		}
	}
}

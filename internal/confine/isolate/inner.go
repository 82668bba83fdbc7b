package isolate

// ShimSocket is where Shim.Socket is inside. Programs inside see an empty file there without one.
const (
	ShimSocket = NotesDir + "/" + ShimStub
	ShimStub   = "bwrap.socket" // its name in Spec.Notes
)

// Shim takes the place of bubblewrap's program inside, wherever the host has that in a system
// directory. Only bwrap knows it.
type Shim struct {
	// Program is the program on the host. It must be the only name in its mount, so that no mount
	// table inside shows a path of the host.
	Program string
	// Socket is the socket on the host that the program connects to; empty for none.
	Socket string
}

// Covering is something empty at a path of an inner sandbox.
type Covering struct {
	Path     string
	File     bool   // an empty file, else a directory
	Mode     uint32 // permission bits of the directory, which is writable
	ReadOnly bool   // the directory is not
}

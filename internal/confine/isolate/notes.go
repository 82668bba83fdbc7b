package isolate

// NotesDir is where programs inside find what Spec.Notes has. It is a mount point also where they
// own its parent, so none of them can move it away.
const NotesDir = "/run/agentfense"

// Names in NotesDir of files that the runtimes mount: those of Spec.Authority, and docker's.
var (
	AuthorityStubs = []string{authorityName, bundleName}
	DockerStubs    = []string{"init", "socket"}
)

// BoardSocket is the name in Spec.Notes of the socket of the board, if the sandbox has one.
const BoardSocket = "board.socket"

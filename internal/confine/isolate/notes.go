package isolate

// NotesDir is where programs inside find what Spec.Notes has. It is a mount point also where they
// own its parent, so none of them can move it away.
const NotesDir = "/run/agentfense"

// NotesStubs are the names in NotesDir of files that the runtimes mount.
var NotesStubs = []string{authorityName, bundleName, "init", "socket"}

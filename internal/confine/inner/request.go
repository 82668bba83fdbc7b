// Package inner reads bubblewrap's command line as a request for a narrower sandbox inside of a
// sandbox, and defines how that request travels to the supervisor.
//
// Coding agents run each command in bubblewrap, which cannot make namespaces in a sandbox. A
// program in its place (package inner/shim) parses the arguments and asks the supervisor. A Request
// can only narrow what the sandbox has: a Step names one path, at which the inner sandbox gets what
// the sandbox has there, the same read-only, or something new and empty. No step can name a source.
//
// What an option asks for is done in full or refused. Parse refuses each option that it does not
// know, and each that it cannot honour.
package inner

import (
	"encoding/base64"
	"path"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/fdmessage"
)

// Kind says what a Step puts at its path.
type Kind uint8

// The kinds.
const (
	ReadOnly Kind = iota + 1 // what the sandbox has there, with everything below, read-only
	Writable                 // what the sandbox has there, as the sandbox may use it
	Empty                    // a new empty directory, writable, that ends with the inner sandbox
	File                     // a new file with Content; read-only unless Own
	Freeze                   // nothing new: the mount that an earlier step made there becomes read-only
	Dir                      // a directory, unless something is there
)

// Bounds of a request. Each step is a mount, of which a mount namespace has a limited number.
const (
	maxSteps   = 512
	maxStrings = 64 << 10 // arguments, and variables
	maxPath    = 4095
	maxContent = 1 << 20 // of all files together, in bytes
	maxName    = 64      // of a host, in bytes
)

// Requests and Replies are the messages between the shim and the supervisor, which accepts no
// descriptor.
var (
	Requests = fdmessage.Format{Name: "arguments and environment", MaxBytes: MaxBytes}
	Replies  = fdmessage.Format{Name: "reply", MaxBytes: 1 << 20, MaxFiles: 3}
)

// MaxBytes bounds an encoded request.
const MaxBytes = 3 << 20

// Text is a string of any bytes. It travels in base64, because JSON would change invalid UTF-8.
type Text string

// MarshalText encodes t.
func (t Text) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(t)), nil
}

// UnmarshalText decodes t.
func (t *Text) UnmarshalText(b []byte) error {
	decoded, err := base64.StdEncoding.DecodeString(string(b))
	*t = Text(decoded)
	return err
}

// Step is one change of what the inner sandbox sees. Steps apply in order, later over earlier.
// Before the first, the inner sandbox sees nothing but the system directories.
type Step struct {
	Kind     Kind   `json:"kind"`
	Path     Text   `json:"path"`               // absolute and clean
	Optional bool   `json:"optional,omitempty"` // of ReadOnly and Writable: nothing need be there
	Own      bool   `json:"own,omitempty"`      // of File: the inner sandbox may change it
	Content  Text   `json:"content,omitempty"`  // of File
	Mode     uint32 `json:"mode,omitempty"`     // permission bits of Empty, File and Dir
	Size     int64  `json:"size,omitempty"`     // bound of Empty, in bytes; 0: the kernel's default
}

// Request is what the shim asks for.
type Request struct {
	Steps   []Step `json:"steps"`
	Command []Text `json:"command"`
	Env     []Text `json:"env"` // KEY=VALUE
	// Dirs are the directories in which the command may start. The first that can be entered is
	// taken.
	Dirs     []Text `json:"dirs"`
	NoNet    bool   `json:"no_net,omitempty"` // a network with nothing in it, not the sandbox's
	Hostname Text   `json:"hostname,omitempty"`

	// DieWithParent is for the shim alone: it ends with the process that started it.
	DieWithParent bool `json:"-"`
}

// Check refuses a request that Parse does not make. Errors: Invalid.
func (r *Request) Check() error {
	if len(r.Steps) > maxSteps {
		return errdefs.New(errdefs.Invalid, "%d paths to bind or hide: at most %d are possible", len(r.Steps), maxSteps)
	}
	content := 0
	for _, s := range r.Steps {
		if s.Kind < ReadOnly || s.Kind > Dir || s.Mode > 0o7777 || s.Size < 0 {
			return errdefs.New(errdefs.Invalid, "malformed step")
		}
		if !isClean(string(s.Path)) {
			return errdefs.New(errdefs.Invalid, "path %q: not a clean absolute path", s.Path)
		}
		content += len(s.Content)
	}
	if content > maxContent {
		return errdefs.New(errdefs.Invalid, "the contents of files: more than %d bytes", maxContent)
	}
	return r.checkCommand()
}

func (r *Request) checkCommand() error {
	if len(r.Command) == 0 || len(r.Command) > maxStrings || len(r.Env) > maxStrings {
		return errdefs.New(errdefs.Invalid, "no command, or too many arguments or variables")
	}
	for _, list := range [][]Text{r.Command, r.Env} {
		for _, t := range list {
			if strings.IndexByte(string(t), 0) >= 0 {
				return errdefs.New(errdefs.Invalid, "%q: contains a NUL byte", t)
			}
		}
	}
	if len(r.Dirs) == 0 || len(r.Dirs) > 3 {
		return errdefs.New(errdefs.Invalid, "no working directory")
	}
	for _, d := range r.Dirs {
		if !isClean(string(d)) {
			return errdefs.New(errdefs.Invalid, "directory %q: not a clean absolute path", d)
		}
	}
	if len(r.Hostname) > maxName || strings.ContainsAny(string(r.Hostname), ":/ \t\n\x00") {
		return errdefs.New(errdefs.Invalid, "host name %q: too long, or a character that files of /etc do not allow", r.Hostname)
	}
	return nil
}

func isClean(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= maxPath && strings.IndexByte(p, 0) < 0
}

// Reply is a message of the supervisor. Three pipes travel with Started: the ends of the command's
// standard input, output and error.
type Reply struct {
	Started bool   `json:"started,omitempty"`
	Ended   bool   `json:"ended,omitempty"`
	Code    int    `json:"code,omitempty"`   // of Ended
	Signal  int    `json:"signal,omitempty"` // of Ended: that ended the command
	Error   string `json:"error,omitempty"`  // why there is no inner sandbox
	// Status is the exit status of the shim with an Error.
	Status int `json:"status,omitempty"`
}

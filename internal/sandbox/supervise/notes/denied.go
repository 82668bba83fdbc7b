package notes

import (
	"path"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Sandbox is what a command outside needs to name a sandbox.
type Sandbox struct {
	Name     string
	OfServer bool // the command needs the address of its server, too
}

// address stands for the address of the server, which no program inside learns.
const address = "ADDRESS"

// grant is the command that grants what arguments name.
func (s Sandbox) grant(arguments string) string {
	command := "agentfense policy grant " + s.Name + " " + arguments
	if s.OfServer {
		command += " --endpoint " + address
	}
	return command
}

// PathDenial is a refusal of a path that the view shows.
type PathDenial struct {
	Sandbox    Sandbox
	Root       string     // where the view is inside
	Mount      string     // name of the mount; "": the workspace
	Path       vpath.Path // in the view
	Operation  string
	Permission policy.Permission // that the path has
	Rule       string            // pattern; "": no rule
	Lock       string            // who has locked the path; "": no other sandbox
	Program    string
}

// writes are the operations that change a file, as the view names them. An open may do that.
var reads = map[string]bool{"read": true, "execve": true, "readlink": true, "lseek": true, "access": true, "inotify_add_watch": true}

// need is the permission that would have allowed an operation on a path that has p.
func need(operation string, p policy.Permission) policy.Permission {
	if p < policy.Read && (operation == "open" || reads[operation]) {
		return policy.Read
	}
	return policy.Write
}

// Path notes the refusal of a path. It notes none of a path that does not show.
func (d *Dir) Path(p PathDenial) error {
	if p.Permission == policy.None {
		return nil
	}
	want := need(p.Operation, p.Permission)
	name, whole := clipped(path.Join(p.Root, string(p.Path.Plain())))
	program, _ := clipped(p.Program)
	rule, _ := clipped(p.Rule)
	x := denial{
		Operation: p.Operation, Permission: p.Permission.String(), Need: want.String(), Rule: rule,
		Untrusted: untrusted{Path: name, Program: program},
	}
	switch {
	case p.Lock != "":
		x.Reason, x.Ask = p.Lock, "wait until the lock ends, or work on another path; no grant permits that"
	case p.Mount != "":
		x.Ask = "the mount " + p.Mount + " has its own policy, which does not change while the sandbox runs; ask the user"
	case p.Path == policy.ProjectFile:
		x.Ask = "no grant permits that: the policy file is never writable from inside"
	case p.Path.IsRoot(), !whole:
		x.Ask = "ask the user to change the policy of the sandbox " + p.Sandbox.Name
	default:
		x.Ask = p.Sandbox.grant(policy.QuoteForShell(p.Path.Rel()) + " " + want.String())
	}
	return d.deny(x)
}

// Host notes the refusal of a host, for a reason. If a grant would permit it, the line says which.
func (d *Dir) Host(sandbox Sandbox, host, reason string, grantable bool) error {
	name, whole := clipped(host)
	why, _ := clipped(reason)
	x := denial{Operation: "connect", Reason: why, Untrusted: untrusted{Host: name}, Ask: "ask the user to change the network of the sandbox " + sandbox.Name}
	if grantable && whole {
		x.Ask = sandbox.grant("--net " + policy.QuoteForShell(host))
	}
	return d.deny(x)
}

package audit

// AskedThing is what a person is asked to allow: a path of a mount, or a host.
type AskedThing struct {
	Ask   string `json:"ask"` // its id, in this run of the sandbox
	Exec  string `json:"exec,omitempty"`
	Mount string `json:"mount,omitempty"` // name of the mount in which Path is; empty: the workspace
	Path  Path   `json:"path,omitempty"`
	Need  string `json:"need,omitempty"` // the permission
	Host  Text   `json:"host,omitempty"`
}

// AccessAsked says that a process waits for somebody's answer.
type AccessAsked struct {
	AskedThing
	Operation string `json:"operation,omitempty"`
	Rule      Text   `json:"rule,omitempty"` // the deciding rule's pattern; empty: no rule
	PID       int    `json:"pid,omitempty"`
	Program   Text   `json:"program,omitempty"`
}

// AccessAnswered says how the wait ended.
type AccessAnswered struct {
	AskedThing
	Allowed bool   `json:"allowed"`
	Scope   string `json:"scope,omitempty"` // "once" or "sandbox"
	// By says who answered: "terminal", "policy ask", "hook", "api"; "timeout", "withdrawn" and
	// "sandbox stopped" if nobody did.
	By       Text  `json:"by"`
	WaitedMS int64 `json:"waited_ms"`
}

// AsksSuppressed counts asks that were denied without asking, because there were too many.
type AsksSuppressed struct {
	Count int `json:"count"`
}

// Kind returns KindAccessAsked.
func (AccessAsked) Kind() Kind { return KindAccessAsked }

// Kind returns KindAccessAnswered.
func (AccessAnswered) Kind() Kind { return KindAccessAnswered }

// Kind returns KindAsksSuppressed.
func (AsksSuppressed) Kind() Kind { return KindAsksSuppressed }

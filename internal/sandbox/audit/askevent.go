package audit

// AccessAsked says that a process, or with the operation "request" a client, waits until a person
// allows it a path or a host.
type AccessAsked struct {
	Ask       string `json:"ask"` // its id, in this run of the sandbox
	Exec      string `json:"exec,omitempty"`
	Mount     string `json:"mount,omitempty"` // its name; empty: the workspace
	Path      Path   `json:"path,omitempty"`
	Need      string `json:"need,omitempty"` // the permission
	Host      Text   `json:"host,omitempty"`
	Operation string `json:"operation,omitempty"`
	Rule      Text   `json:"rule,omitempty"` // the deciding rule's pattern; empty: no rule
	PID       int    `json:"pid,omitempty"`
	Program   Text   `json:"program,omitempty"`
	Reason    Text   `json:"reason,omitempty"` // what a client says; untrusted
}

// AccessAnswered says how the wait ended.
type AccessAnswered struct {
	Ask     string `json:"ask"`
	Exec    string `json:"exec,omitempty"`
	Mount   string `json:"mount,omitempty"`
	Path    Path   `json:"path,omitempty"`
	Need    string `json:"need,omitempty"`
	Host    Text   `json:"host,omitempty"`
	Allowed bool   `json:"allowed"`
	Scope   string `json:"scope,omitempty"` // "once", "sandbox" or "project"
	// By says who answered: "terminal", "policy ask", "review", "hook", "api"; without an answer it
	// is "timeout", "withdrawn" or "sandbox stopped".
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

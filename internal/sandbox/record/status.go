package record

// Status is the status of a server's sandbox.
type Status string

// The statuses.
const (
	Pending Status = "pending" // created, never started
	Running Status = "running"
	Stopped Status = "stopped"
	Failed  Status = "error" // a start failed or the supervisor died
)

// Status returns the status of the sandbox, and the reason if it is Failed. live says
// whether it has a supervisor.
func (s *Served) Status(live bool) (status Status, reason string) {
	switch {
	case live:
		return Running, ""
	case s.Failure != "":
		return Failed, s.Failure
	case s.Running:
		return Failed, "its supervisor ended, although no client stopped the sandbox"
	case s.StartedAt.IsZero():
		return Pending, ""
	}
	return Stopped, ""
}

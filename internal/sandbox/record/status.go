package record

// Status is where a server's sandbox stands.
type Status string

// The statuses.
const (
	Pending Status = "pending" // made, never started
	Running Status = "running"
	Stopped Status = "stopped"
	Failed  Status = "error" // a start failed or the supervisor died
)

// Status returns where the sandbox stands, and why if that is Failed. live says whether
// it has a supervisor.
func (s *Served) Status(live bool) (status Status, reason string) {
	switch {
	case live:
		return Running, ""
	case s.Failure != "":
		return Failed, s.Failure
	case s.Running:
		return Failed, "it was not stopped, and its supervisor has ended"
	case s.StartedAt.IsZero():
		return Pending, ""
	}
	return Stopped, ""
}

package boardsocket

import (
	"net/http"
	"strconv"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// statuses are what HTTP calls the kinds of errors.
var statuses = map[errdefs.Kind]int{
	errdefs.Invalid:      http.StatusBadRequest,
	errdefs.Denied:       http.StatusForbidden,
	errdefs.NotFound:     http.StatusNotFound,
	errdefs.Hidden:       http.StatusNotFound,
	errdefs.Precondition: http.StatusConflict,
	errdefs.Exhausted:    http.StatusTooManyRequests,
	errdefs.Deadline:     http.StatusGatewayTimeout,
	errdefs.Unavailable:  http.StatusServiceUnavailable,
}

func statusOf(kind errdefs.Kind) int {
	if status := statuses[kind]; status != 0 {
		return status
	}
	return http.StatusInternalServerError
}

// statusLine is a status as it is written at the beginning of an answer.
func statusLine(status int) string { return strconv.Itoa(status) + " " + http.StatusText(status) }

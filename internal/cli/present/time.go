package present

import (
	"regexp"
	"time"
)

// LocalTime is a time as people read it: in the time zone of this host. JSON, logs and errors of a
// server have RFC 3339 in UTC instead.
func LocalTime(t time.Time) string { return t.Local().Format(time.DateTime) }

// untilUTC is the end of a grant or of a lock, as it is stored in the source of a rule.
var untilUTC = regexp.MustCompile(` until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// LocalUntil returns the source of a rule, or the reason of a decision, as people read it.
func LocalUntil(text string) string {
	return untilUTC.ReplaceAllStringFunc(text, func(until string) string {
		t, err := time.Parse(" until "+time.RFC3339, until)
		if err != nil {
			return until
		}
		return " until " + LocalTime(t)
	})
}

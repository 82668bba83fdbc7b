//go:build !linux

package endpoint

import "github.com/agentfense/agentfense/internal/fault"

// FindUsual finds nobody to trust: whose listener is at Usual is told on Linux
// alone.
func FindUsual() (address string, err error) {
	return "", fault.New(fault.Denied, "%s: not asked, for whose server is there is told on Linux alone: name it: set AGENTFENSE_ENDPOINT", Usual)
}

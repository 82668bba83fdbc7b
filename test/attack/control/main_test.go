// Package control_test attacks the server and its containers: cases 52 and 64.
package control_test

import (
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) {
	harness.Main(m, &binary, harness.BuildWithServer)
}

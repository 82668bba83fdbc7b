// Package failpoint lets a test kill this process between two steps, to check that the next process
// recovers the old or the new state.
//
// At does something only in programs with the build tag crashpoints.
package failpoint

// Variable is the environment variable with the path of a file, which contains the point at which
// the process is killed. Without the file it is not killed.
const Variable = "AGENTFENSE_TEST_CRASH_POINT"

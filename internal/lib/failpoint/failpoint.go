// Package failpoint lets a test kill this process between two steps, wherever
// these are: what the next process finds then is neither the old nor the new
// state, and has to be made one of them.
//
// Only programs that are built with the tag crashpoints can be killed so. In
// every other At is empty.
package failpoint

// Variable names, in the environment, the file that holds the point at which the
// process is killed; as long as there is none, it is not.
const Variable = "AGENTFENSE_TEST_CRASH_POINT"

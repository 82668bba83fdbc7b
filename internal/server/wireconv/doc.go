// Package wireconv converts between the messages of the API and the domain: each message and each
// enum in one place, for the server and for its clients.
//
// An Encode function converts a value of the domain to a message, a Decode function the reverse.
// Tests find a field that only one of them handles (TestEveryFieldSurvives), and a field of a
// request that is not read (TestEveryFieldOfARequestIsRead).
//
// The package refuses only messages without a meaning. Package service checks limits, rights and
// what a caller may know. A Decode function of an answer does not trust the server: it parses paths
// and escapes texts that people see.
package wireconv

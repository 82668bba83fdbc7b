// Package wireconv converts between the messages of the API and the domain: each
// message, and each enum, in one place, for the server and for its clients.
//
// An Encode function makes a message of a value of the domain, a Decode function
// the reverse. What one of them reads and the other does not write is lost on the
// way to the command line; TestEveryFieldSurvives finds it. TestEveryFieldOfARequestIsRead
// finds a field of a request that has no effect.
//
// The package checks only whether a message has a meaning. Limits of size, rights and
// what a caller may know are the business of package service. A Decode function of an
// answer does not trust the server: it parses paths and escapes texts that people see.
package wireconv

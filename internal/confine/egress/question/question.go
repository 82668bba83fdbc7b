// Package question is what the egress process asks others and waits for: the supervisor for the
// addresses of hosts inside, for sockets inside, whether a port of localhost may be used, and how
// much of its limits; and the host's resolver for the addresses of names outside.
package question

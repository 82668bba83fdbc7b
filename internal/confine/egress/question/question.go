// Package question is what the egress process asks its supervisor and waits for: the addresses of
// hosts, sockets inside, and whether a port of localhost may be used.
package question

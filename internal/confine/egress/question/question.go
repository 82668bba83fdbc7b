// Package question is what the egress process asks its supervisor and waits for: the addresses of
// hosts, whether a port of localhost may be used, and how much of its limits.
package question

package attack_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// hiding is how the rules of a test hide: they let programs make entries of their
// own there, or refuse that.
type hiding string

const (
	hidesOwn    hiding = "own"
	hidesStrict hiding = "strict"
)

// eachHiding runs a test with either kind of rules.
func eachHiding(t *testing.T, test func(t *testing.T, h hiding)) {
	for _, h := range []hiding{hidesOwn, hidesStrict} {
		t.Run(string(h), func(t *testing.T) { test(t, h) })
	}
}

// flags hides what the patterns match.
func (h hiding) flags(patterns ...string) []string {
	var flags []string
	for _, p := range patterns {
		if h == hidesStrict {
			p = "strict:" + p
		}
		flags = append(flags, "--hide", p)
	}
	return flags
}

// making is how a call ends that makes something at a hidden path.
func (h hiding) making() unix.Errno {
	if h == hidesStrict {
		return unix.EACCES
	}
	return 0
}

// args tells a program inside of h, which it reads with hidingOf.
func (h hiding) args() []string { return []string{string(h)} }

func hidingOf(args []string) hiding { return hiding(args[0]) }

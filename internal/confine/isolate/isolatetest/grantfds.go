package isolatetest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

var grantCases = []testCase{
	{name: "pipes are granted to a running command", run: testGrant},
	{name: "only pipes are granted, and one lease at a time", run: testGrantRefused},
	{name: "an interrupt reaches what is newer than the lease", run: testInterrupt},
}

// lease has the pipes that a test grants.
type lease struct {
	guest.FDLease
	text, out, errs *os.File // our ends
}

func (r *running) grant() lease {
	r.t.Helper()
	var l lease
	var theirs [3]*os.File
	for i, ours := range []**os.File{&l.text, &l.out, &l.errs} {
		read, write, err := os.Pipe()
		if err != nil {
			r.t.Fatal(err)
		}
		theirs[i], *ours = write, read
		if i == 0 {
			theirs[i], *ours = read, write
		}
		r.t.Cleanup(func() {
			read.Close()
			write.Close()
		})
	}
	var err error
	if l.FDLease, err = r.GrantFDs(theirs); err != nil {
		r.t.Fatal(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	return l
}

func testGrant(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", `while read p; do cat /proc/$p/fd/0 >/proc/$p/fd/1 2>/proc/$p/fd/2; echo $?; done`}})
	for _, text := range []string{"one", "two", ""} {
		l := r.grant()
		if _, err := l.text.WriteString(text); err != nil {
			t.Fatal(err)
		}
		l.text.Close()
		fmt.Fprintln(r.stdin, l.PID)
		if got := r.line(); got != "0" {
			t.Fatalf("%q: status %s", text, got)
		}
		if err := r.RevokeFDs(); err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(l.out)
		if string(out) != text || err != nil {
			t.Errorf("got %q, %v, want %q", out, err, text)
		}
		if errs, err := io.ReadAll(l.errs); len(errs) != 0 || err != nil {
			t.Errorf("stderr: %q, %v", errs, err)
		}
	}
	if left := b.must(`ps -A -o args= | grep -c '[k]ill -STOP' || :`); left != "0" {
		t.Errorf("%s holders are left", left)
	}
	r.stdin.Close()
	r.gone()
	if err := r.RevokeFDs(); !errdefs.Is(err, errdefs.Unavailable) {
		t.Errorf("after the end: %v", err)
	}
}

func testGrantRefused(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", "read x"}})
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if _, err := r.GrantFDs([3]*os.File{read, write, null}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a device: %v", err)
	}
	for range 2 {
		r.grant()
		if _, err := r.GrantFDs([3]*os.File{read, write, write}); !errdefs.Is(err, errdefs.Internal) {
			t.Errorf("a second lease: %v", err)
		}
		if err := r.RevokeFDs(); err != nil {
			t.Error(err)
		}
	}
}

func testInterrupt(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", `trap 'echo int' INT
		sleep 601 & (sleep 602; :) & echo old; read x
		sleep 603 & (setsid sleep 604 &); sh -c 'sleep 605; :' & echo new; read x; read x; echo end`}})
	sleeping := func() string {
		return strings.Join(strings.Fields(b.must(`ps -A -o args= | sed -n 's/^sleep //p' | sort`)), " ")
	}
	if got := r.line(); got != "old" {
		t.Fatal(got)
	}
	l := r.grant()
	defer l.text.Close()
	fmt.Fprintln(r.stdin)
	if got := r.line(); got != "new" {
		t.Fatal(got)
	}
	for sleeping() != "601 602 603 604 605" { // until setsid and sh have run it
		continue
	}
	for n := -1; n != 0; {
		var err error
		if n, err = r.Interrupt(0, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if got := sleeping(); got != "601 602" {
		t.Errorf("left: %s", got)
	}
	if _, err := r.Interrupt(unix.SIGINT, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := r.line(); got != "int" {
		t.Errorf("the command itself: %s", got)
	}
	if err := r.RevokeFDs(); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	r.gone()
	if got := sleeping(); got != "" {
		t.Errorf("after the kill: %s", got)
	}
}

// Command join makes one file of two programs: join FIRST SECOND OUT.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/agentfense/agentfense/internal/bundle"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "join: usage: join FIRST SECOND OUT")
		os.Exit(2)
	}
	if err := join(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "join:", err)
		os.Exit(1)
	}
}

func join(first, second, out string) error {
	a, err := os.Open(first)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := os.Open(second)
	if err != nil {
		return err
	}
	defer b.Close()
	temp := out + ".new"
	o, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if err := errors.Join(bundle.Join(o, a, b), o.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return os.Rename(temp, out)
}

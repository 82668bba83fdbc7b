//go:build linux

package client_test

import (
	"context"
	"fmt"
	"os"

	"github.com/agentfense/agentfense/client"
)

func Example() {
	dir, err := os.MkdirTemp("", "repository")
	if err == nil {
		defer os.RemoveAll(dir)
		err = greet(context.Background(), dir)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// hello
	// added greeting
}

// greet lets a command work on a directory of this host; what it changed is to
// be reviewed before any of it is carried over.
func greet(ctx context.Context, dir string) error {
	c, err := client.New(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	repository, err := c.Link(ctx, dir)
	if err != nil {
		return err
	}
	defer c.DeleteCodebase(ctx, repository.ID)
	box, err := c.CreateSandbox(ctx, repository.ID, client.WithPreset("development"))
	if err != nil {
		return err
	}
	defer box.Destroy(ctx)

	result, err := box.Run(ctx, "echo hello >greeting; cat greeting")
	if err != nil {
		return err
	}
	fmt.Printf("%s", result.Stdout)
	changes, err := box.Diff(ctx)
	for _, change := range changes {
		fmt.Println(change.Status, change.Path)
	}
	return err
}

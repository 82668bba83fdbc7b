package api

import (
	"context"
	"os"
)

// SecretFiles is how many descriptors hand secrets over.
const SecretFiles = 2

// HasSecrets reports whether the network of the sandbox has the values of its secrets.
func (c *Client) HasSecrets(ctx context.Context) (bool, error) {
	answer, err := c.call(ctx, Request{Op: OpSecrets})
	return answer.HasSecrets, err
}

// GiveSecrets hands the values of the secrets over, in a pipe that has all of them and no writer,
// and the certificates that are trusted, in a file. The supervisor reads neither. Errors:
// Unavailable while the process that needs them is starting.
func (c *Client) GiveSecrets(ctx context.Context, values, certificates *os.File) error {
	_, err := c.call(ctx, Request{Op: OpSecrets}, values, certificates)
	return err
}

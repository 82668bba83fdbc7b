package service

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/secrets"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// A client names secrets of the configuration. The server finds their values at each start, and
// hands them over to the sandbox's network, as the command line does. It keeps none: neither the
// record nor an answer has a value, and errors that could tell where one is from go to the log.

// TakeVariables removes the variables with values of secrets from the environment, which all
// programs inherit that the server starts. It returns a function that looks up these, and the
// others.
func TakeVariables(c *config.Config) (getenv func(string) string, err error) {
	taken := map[string]string{}
	for _, name := range c.SecretVariables() {
		taken[name] = os.Getenv(name)
		if err := os.Unsetenv(name); err != nil {
			return nil, errdefs.New(errdefs.Internal, "%s: %w", name, err)
		}
	}
	return func(name string) string {
		if value, is := taken[name]; is {
			return value
		}
		return os.Getenv(name)
	}, nil
}

// secretPatience is how long the commands that print the values of a sandbox's secrets may take.
const secretPatience = 30 * time.Second

// secretsFor returns the secrets of an owner's sandbox as its record has them, with the
// placeholders of those before. finder then knows their values. Errors: Invalid; NotFound for a
// name that the configuration does not have for the owner; Precondition.
func (s *Service) secretsFor(ctx context.Context, finder *secrets.Finder, owner string, names []string, before []hostlist.Secret) ([]hostlist.Secret, error) {
	var given []hostlist.Secret
	for i, name := range names {
		found, ok := s.config.SecretOf(name, owner)
		switch {
		case slices.Contains(names[:i], name):
			return nil, errdefs.New(errdefs.Invalid, "secrets: %s is named twice", vpath.Quote(name))
		case !ok:
			return nil, errdefs.New(errdefs.NotFound, "secrets: this server has no secret %s for the owner %s (secrets in its configuration)", vpath.Quote(name), vpath.Escape(owner))
		}
		given = append(given, found.Stored)
	}
	if len(given) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretPatience)
	defer cancel()
	list, err := finder.Complete(ctx, given, before)
	if err != nil {
		id := incident()
		s.log.ErrorContext(ctx, "cannot use secrets", "incident", id, "owner", owner, "err", err)
		return nil, errdefs.New(errdefs.Precondition, "secrets: the server cannot find a value, incident %s: see the server's log", id)
	}
	return list, nil
}

// checkNotSecret refuses variables that have the name of a secret: they would show commands its
// value.
func checkNotSecret(env map[string]string, secrets []string) error {
	for _, name := range secrets {
		if _, is := env[name]; is {
			return errdefs.New(errdefs.Invalid, "env: %s is a secret, and commands would know a value that is given here", vpath.Quote(name))
		}
	}
	return nil
}

func (s *Service) secretFinder() *secrets.Finder { return &secrets.Finder{Getenv: s.getenv} }

// renewSecrets stores the secrets of a sandbox as the configuration has them now, with their values
// in finder. Errors: as secretsFor.
func (s *Service) renewSecrets(ctx context.Context, finder *secrets.Finder, sb *record.Sandbox) error {
	r := sb.Record()
	if len(r.Secrets) == 0 {
		return nil
	}
	var names []string
	all, err := secrets.Of(&r)
	for _, one := range all {
		names = append(names, one.Name)
	}
	var now []hostlist.Secret
	if err == nil {
		now, err = s.secretsFor(ctx, finder, r.Served.OwnerID, names, r.Secrets)
	}
	if err != nil {
		return err
	}
	return sb.Update(func(to *record.Record) error {
		to.Secrets = now
		return nil
	})
}

// giveSecrets hands values over to the network of a sandbox that lacks them. Requests that need one
// that cannot be found are refused.
func (s *Service) giveSecrets(ctx context.Context, finder *secrets.Finder, sb *record.Sandbox, client *api.Client) error {
	r := sb.Record()
	if len(r.Secrets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretPatience)
	defer cancel()
	return finder.Give(ctx, client, &r, func(err error) {
		s.log.WarnContext(ctx, "cannot find the value of a secret", "sandbox", sb.ID(), "err", err)
	})
}

// giveSecretsAgain is giveSecrets before a command: the process that had them may have been
// replaced.
func (s *Service) giveSecretsAgain(ctx context.Context, j *job) {
	if err := s.giveSecrets(ctx, s.secretFinder(), j.sandbox, j.client); err != nil && !errdefs.Is(err, errdefs.NotFound) {
		s.log.WarnContext(ctx, "cannot hand over secrets", "sandbox", j.sandbox.ID(), "err", err)
	}
}

// knownSecrets returns what a client may know of the secrets of a record.
func knownSecrets(r *record.Record) []wireconv.Secret {
	all, err := secrets.Of(r)
	if err != nil {
		return nil // the next start reports it
	}
	var known []wireconv.Secret
	for _, one := range all {
		k := wireconv.Secret{Name: one.Name}
		for _, host := range one.Hosts {
			k.Hosts = append(k.Hosts, host.String())
		}
		known = append(known, k)
	}
	return known
}

package supervise

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress"
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/authority"
	"github.com/agentfense/agentfense/internal/confine/egress/forwardproxy"
	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/secrets"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// hasNamedNet reports whether the sandbox has a network of named hosts.
func (s *supervisor) hasNamedNet() bool { return s.record.Net == record.NetNamed }

// prepareNetwork reads the hosts that may be reached, before anything inside exists, and makes the
// authority that programs inside are to trust if connections are to be opened.
func (s *supervisor) prepareNetwork() error {
	rec := s.box.Record()
	if ended := rec.DropEnded(s.startedAt); len(ended) > 0 { // while the sandbox did not run
		err := s.box.Update(func(r *record.Record) error {
			r.DropEnded(s.startedAt)
			return nil
		})
		if err != nil {
			return err
		}
		s.append(rec.Event(hostlist.Change{Revoke: ended, Reason: "the time is over"}, s.startedAt))
	}
	s.record.AllowNet = rec.AllowNet
	s.hosts.rec = rec // nobody else looks at it yet
	if !slices.ContainsFunc(rec.AllowNet, hostlist.Intercepts) {
		return nil
	}
	pair, err := authority.New()
	s.authority = &pair
	return err
}

// startNetwork makes a network of named hosts in a namespace; nil: in a new one. program plays the
// egress process, too.
func (s *supervisor) startNetwork(program string, namespace *os.File) error {
	all, err := secrets.Of(&s.record)
	if err != nil {
		return err
	}
	rules, err := s.networkRules(s.record.AllowNet)
	if err != nil {
		return err
	}
	o := egress.Options{
		Rules: rules, Secrets: all, Authority: s.authority, Publish: s.record.Places(),
		Proxy: forwardproxy.FromEnvironment(os.Getenv), Namespace: namespace, Changed: s.onOtherNetwork,
		Allowed: s.onAllowed, Denied: s.onRefused, Limited: s.onLimited, Inbound: s.onInbound,
		Failed: func(err error) { s.log.Error("the network is down for a moment", "err", err) },
	}
	if s.asks != nil {
		o.Permit = s.askForHost
	}
	o.UID = int(s.record.OtherUID()) // another one with each call
	o.GID = o.UID
	if o.Limits, err = hostlist.Limits(s.record.NetLimits); err != nil {
		return err
	}
	if o.Roots, err = rootsFor(o); err != nil {
		return err
	}
	fd, err := unix.Open(program, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		o.Roots.Close()
		return errdefs.New(errdefs.Internal, "open our own program: %w", err)
	}
	o.Program = os.NewFile(uintptr(fd), "program")
	s.egress, err = egress.Start(o)
	if err != nil {
		return err
	}
	s.beginHosts()
	return nil
}

// rootsFor opens the certificates by which hosts and proxies are verified, nil if none are.
func rootsFor(o egress.Options) (*os.File, error) {
	proxies, err := forwardproxy.Parse(o.Proxy)
	if err != nil || o.Authority == nil && !proxies.NeedsRoots() {
		return nil, err
	}
	return secrets.Certificates(os.Getenv)
}

// onOtherNetwork ends a sandbox that somebody has given another network, which no rule governs.
func (s *supervisor) onOtherNetwork(name string) {
	s.log.Error("the sandbox was given another network, so it stops", "interface", name)
	s.mu.Lock()
	s.endReason = "it was given another network: the interface " + name
	s.mu.Unlock()
	s.stop()
}

// networkRules are the rules for hosts, and for the addresses of secrets. A host of a secret is
// reached there alone, or where its connections are opened.
func (s *supervisor) networkRules(hosts []string) ([]allowlist.Rule, error) {
	all, err := secrets.Of(&s.record)
	if err != nil {
		return nil, err
	}
	rules, err := allowlist.Parse(hosts)
	rules = slices.DeleteFunc(rules, func(r allowlist.Rule) bool {
		_, _, guarded := secret.Guarding(all, r.Host, r.Port)
		return guarded && !r.Wildcard && !r.Intercept
	})
	return append(rules, secret.Rules(all)...), err
}

// environment adds the variables that name the certificates of opened connections. A command's own
// settings win.
func (s *supervisor) environment(env []string) []string {
	if s.authority == nil {
		return env
	}
	env = slices.Clip(env)
	for _, variable := range isolate.CertificateVariables {
		name, _, _ := strings.Cut(variable, "=")
		if !slices.ContainsFunc(env, func(own string) bool { return strings.HasPrefix(own, name+"=") }) {
			env = append(env, variable)
		}
	}
	return env
}

// giveSecrets passes the values of the secrets on to the process that needs them. Without files it
// tells whether that has them.
func (s *supervisor) giveSecrets(files []*os.File) (api.Reply, error) {
	switch {
	case s.egress == nil:
		return api.Reply{}, errdefs.New(errdefs.Precondition, "sandbox %s: has no network of named hosts", s.record.Name)
	case len(files) == 0:
		return api.Reply{OK: true, HasSecrets: s.egress.HasSecrets()}, nil
	case len(files) != api.SecretFiles:
		return api.Reply{}, errdefs.New(errdefs.Invalid, "control: want %d descriptors with secrets, got %d", api.SecretFiles, len(files))
	}
	return api.Reply{OK: true, HasSecrets: true}, s.egress.GiveSecrets(files[0], files[1])
}

// networkReady returns when the network works.
func (s *supervisor) networkReady(ctx context.Context) error {
	if s.egress == nil {
		return nil
	}
	return s.egress.Ready(ctx)
}

// endNetwork ends the network meanwhile, and closes the channel when the last of it is recorded.
func (s *supervisor) endNetwork() <-chan struct{} {
	ended := make(chan struct{})
	s.hosts.stop()
	go func() {
		defer close(ended)
		if s.egress != nil {
			s.warn("egress: close", s.egress.Close())
		}
	}()
	return ended
}

// onAllowed records a connection that has ended.
func (s *supervisor) onAllowed(a egress.Allowed) {
	event := audit.NetworkAllowed{
		Host: audit.Text(a.Host), Port: a.Port, Rule: audit.Text(a.Rule),
		SentBytes: a.Sent, ReceivedBytes: a.Received, Requests: a.Requests, Proxy: audit.Text(a.Proxy), Error: audit.Text(a.Error),
	}
	if a.Addr.IsValid() {
		event.Address = a.Addr.String()
	}
	s.append(event)
}

// onLimited records that a limit was reached, of the secret of or, "", of the network.
func (s *supervisor) onLimited(of string, l quota.Limit) {
	resource := "network." + l.Name
	if of != "" {
		resource = "secret." + of + "." + l.Name
	}
	s.append(audit.ResourceLimitExceeded{Resource: resource, Limit: float64(l.Max)})
}

// onRefused records what was not let out.
func (s *supervisor) onRefused(d egress.Denied) {
	s.noteHostForProgram(d)
	s.append(audit.NetworkDenied{Host: audit.Text(d.Host), Port: d.Port, Protocol: d.Protocol, Reason: audit.Text(d.Reason), Count: d.Count})
}

// onSocket records a socket that no program gets, in whatever network.
func (s *supervisor) onSocket(r guest.RefusedSocket) {
	s.append(audit.NetworkDenied{Socket: r.Kind, Program: audit.Text(r.Program), Reason: socketReason, Count: r.Count})
}

// socketReason is why a socket was refused.
const socketReason = "no program gets a socket of this kind"

// settlePatience is how long the end of a command waits for what PID 1 has refused it.
const settlePatience = 500 * time.Millisecond

// onInbound records a connection to a published port that has ended.
func (s *supervisor) onInbound(in publish.Inbound) {
	s.append(audit.PortConnected{
		Address: in.At.Addr().String(), HostPort: in.At.Port(), Port: in.Inside, SentBytes: in.Sent, ReceivedBytes: in.Received, Error: audit.Text(in.Error),
	})
}

// publishedPorts are the ports that the host shows.
func (s *supervisor) publishedPorts() (all []audit.PublishedPort) {
	for _, p := range s.record.Places() {
		all = append(all, audit.PublishedPort{Address: p.At.Addr().String(), HostPort: p.At.Port(), Port: p.Inside})
	}
	return all
}

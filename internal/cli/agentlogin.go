package cli

import (
	"context"
	"math"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/login"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// agentLogin is the login of an agent; nil if the agent has no login.
type agentLogin struct {
	path string
	// readable: programs inside can read it.
	readable bool
	// secret is the one that has the token, "" for none. Then the file does not exist inside.
	secret string
	of     *login.Login
	renews bool
	pause  time.Duration // between two looks at the file

	mu     sync.Mutex
	failed error // the last renewal, nil if it succeeded
}

// sourceOf returns where a secret's value is from, "" if it is not that of the login.
func (l *agentLogin) sourceOf(s profile.Secret) string {
	if l == nil || l.secret != s.Name {
		return ""
	}
	return l.of.Source()
}

// sayAfter says at the end what the agent's screen may have hidden.
func (l *agentLogin) sayAfter(e *env, name string) {
	if l == nil {
		return
	}
	if l.readable {
		e.say("%s: the login in %s was readable inside", name, vpath.Escape(l.path))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		e.say("%s: %v; outside, the agent renews its login or asks you to log in", name, l.failed)
	}
}

// hidesLogin ends the source of the rule by which a login does not exist inside. The agent looks
// for the file each time.
const hidesLogin = ", its login"

// takeLogin finds the agent's login. Where it can, it takes the file away from the home directory
// inside, and has the token given as a secret. It returns the profile for that.
func (o *runOptions) takeLogin(ctx context.Context, e *env, cmd *cobra.Command, in *inside, p *profile.Profile) (*profile.Profile, error) {
	spec, found, err := in.loginOf(p)
	if err != nil || !found {
		return p, err
	}
	l := &agentLogin{of: login.In(in.realHome(), spec), path: login.In(in.home, spec).Path(), pause: loginPause}
	o.login = l
	state := login.State{}
	s, is := p.SecretOf(spec)
	if is && !cmd.Flags().Changed("net") { // with --net, there is no network for secrets
		state, _ = l.of.State() // what cannot be read as a login is readable inside, as a file
	}
	key := o.keyOf(e, p)
	baseOnly := key == "" && slices.ContainsFunc(p.Secrets, func(s profile.Secret) bool { return s.BaseURL != "" && e.getenv(s.BaseURL) != "" })
	if !state.HasToken || baseOnly { // another address gets what the agent sends it, as without agentfense
		l.readable = true
		e.say("%s: the login in %s is readable inside: what runs there can use the account", p.Name, vpath.Escape(l.path))
		return p, nil
	}
	if key != "" {
		e.say("%s: the login in %s does not exist inside, because %s is set", p.Name, vpath.Escape(l.path), key)
	} else {
		l.secret, l.renews = s.Name, spec.Renew.URL != ""
		if l.renews && state.IsDue(time.Now()) && !asksOnly(o.agentArgs) {
			var err error
			came := shielded(func() { _, err = l.of.Renew(ctx) })
			if err != nil {
				e.say("%s: %v", p.Name, err)
			}
			if came != nil {
				return nil, errdefs.New(errdefs.Canceled, "%s: ended by the signal %s", p.Name, came)
			}
		}
		o.Env = addVariables(slices.Clone(o.Env), l.of.Variables()...)
	}
	without := *p
	without.Home = append(slices.Clip(p.Home), policy.Rule{
		Pattern: "/" + spec.File, Type: policy.File, Permission: policy.None, Priority: math.MaxInt32, Own: true, Source: mountspec.ProfileSource + p.Name + hidesLogin,
	})
	return &without, nil
}

// keyOf returns the name of a key that the caller has for the agent, "" if the caller has no key.
func (o *runOptions) keyOf(e *env, p *profile.Profile) string {
	for _, s := range p.Secrets {
		if o.isGiven(s) || e.getenv(s.Name) != "" {
			return s.Name
		}
	}
	return ""
}

// loginOf returns the agent's login if it is there and would be readable inside.
func (in *inside) loginOf(p *profile.Profile) (spec login.Spec, found bool, err error) {
	for _, spec := range p.Login {
		if !has(in.home, spec.File) {
			continue
		}
		home, err := policy.Compile(p.HomeRules(), policy.Options{})
		if err != nil {
			return login.Spec{}, false, err
		}
		if home.Decide(vpath.Root.Child(spec.File)).Permission >= policy.Read {
			return spec, true, nil
		}
	}
	return login.Spec{}, false, nil
}

// How often the file of a login is looked at, and how long after a failure it is renewed again.
const (
	loginPause = 30 * time.Second
	loginRetry = 2 * time.Minute
)

// follow renews the login while a sandbox runs, and hands its token over to the sandbox when it is
// another one, until end is called.
func (l *agentLogin) follow(ctx context.Context, live backend.Live) (end func()) {
	if l == nil || l.secret == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.followUntil(ctx, live)
	}()
	return func() {
		cancel()
		<-done // a renewal that has begun is finished
	}
}

func (l *agentLogin) followUntil(ctx context.Context, live backend.Live) {
	var given login.State // what Enter has handed over is given again: it may have changed before
	var retry time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(l.pause):
		}
		state, err := l.of.State()
		if err != nil || !state.HasToken {
			continue // it is being written, or somebody has logged out
		}
		if l.renews && state.IsDue(time.Now()) && time.Now().After(retry) {
			shielded(func() { state, err = l.of.Renew(ctx) }) // while the command runs, it gets the signal
			if err != nil {
				retry = time.Now().Add(loginRetry)
			}
			l.note(err)
		}
		if state != given && state.HasToken {
			if live.GiveSecrets(ctx) == nil { // else the next look tries again
				given = state
			}
		}
	}
}

// shielded calls do, and lets no signal but SIGKILL end this process meanwhile: what a provider has
// issued is stored. It returns a signal that came, nil if none did.
func shielded(do func()) os.Signal {
	came := make(chan os.Signal, 1)
	signal.Notify(came, forwarded...)
	do()
	signal.Stop(came) // afterwards, what came is there
	select {
	case s := <-came:
		return s
	default:
		return nil
	}
}

func (l *agentLogin) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
}

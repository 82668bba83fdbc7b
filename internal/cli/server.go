package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/statedir"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// endpointOptions are the flags of every verb that say which server to ask.
type endpointOptions struct {
	Endpoint  string
	TLS       endpoint.Files
	TokenFile string
}

// endpointFlags are their names.
var endpointFlags = []string{"endpoint", "tls-ca", "tls-cert", "tls-key", "token-file"}

func (o *endpointOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.Endpoint, "endpoint", "", "act on the server at `URL`, not on this host: HOST:PORT, https://HOST:PORT or unix:///PATH (default $AGENTFENSE_ENDPOINT)")
	f.StringVar(&o.TLS.CA, "tls-ca", "", "certificate `FILE` of the authority that signed the server's (default $AGENTFENSE_TLS_CA, else the system's)")
	f.StringVar(&o.TLS.Cert, "tls-cert", "", "client certificate `FILE` to show the server (default $AGENTFENSE_TLS_CERT)")
	f.StringVar(&o.TLS.Key, "tls-key", "", "`FILE` of its key (default $AGENTFENSE_TLS_KEY)")
	f.StringVar(&o.TokenFile, "token-file", "", "`FILE` that holds the token (default $AGENTFENSE_TOKEN, then $AGENTFENSE_TOKEN_FILE, then this user's server's)")
}

// annotationServer marks the verbs that can act on a server.
const annotationServer = "server"

// marked adds the mark of the verbs that can act on a server.
func marked(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[annotationServer] = "true"
}

// refuseEndpoint refuses a verb that knows no server the flags of one.
func refuseEndpoint(cmd *cobra.Command, _ []string) error {
	if cmd.Annotations[annotationServer] != "" {
		return nil
	}
	return refuseFor(cmd, "")
}

// hideEndpoint leaves those flags out of the help of such a verb.
func hideEndpoint(cmd *cobra.Command) {
	if cmd.HasSubCommands() || cmd.Annotations[annotationServer] != "" {
		return
	}
	for _, name := range endpointFlags {
		cmd.InheritedFlags().Lookup(name).Hidden = true
	}
}

// refuseFor refuses the flags of a server.
func refuseFor(cmd *cobra.Command, reason string) error {
	given := slices.IndexFunc(endpointFlags, cmd.Flags().Changed)
	if given < 0 {
		return nil
	}
	return usageError{errdefs.New(errdefs.Invalid, "%s: works only on this host%s: leave --%s out", cmd.CommandPath(), reason, endpointFlags[given])}
}

// address is the endpoint that is given, "" for none.
func (e *env) address() string {
	if e.at.Endpoint != "" {
		return e.at.Endpoint
	}
	return e.getenv("AGENTFENSE_ENDPOINT")
}

// hereOnly refuses what cannot be done on a server, where one is given.
func (e *env) hereOnly(what string) error {
	if e.address() == "" {
		return nil
	}
	return usageError{errdefs.New(errdefs.Invalid, "%s: works only on this host: leave --endpoint and AGENTFENSE_ENDPOINT out", what)}
}

// on has do act on this host, or on the server that is given.
func (e *env) on(cmd *cobra.Command, do func(context.Context, backend.Backend) error) error {
	address := e.address()
	var err error
	if address == "" {
		err = e.onHost(cmd, do)
	} else {
		err = e.onServer(cmd.Context(), address, func(ctx context.Context, s backend.Server) error {
			return do(ctx, s)
		})
	}
	if only, is := errors.AsType[*backend.LocalOnlyError](err); is {
		return usageError{errdefs.New(errdefs.Invalid, "%s %w", cmd.CommandPath(), only)}
	}
	if only, is := errors.AsType[*backend.ServerOnlyError](err); is {
		return usageError{only}
	}
	return doneElsewhere(err)
}

// onHost has do act on this host.
func (e *env) onHost(cmd *cobra.Command, do func(context.Context, backend.Backend) error) error {
	if given := slices.IndexFunc(endpointFlags, cmd.Flags().Changed); given >= 0 {
		return usageError{errdefs.New(errdefs.Invalid, "--%s: needs --endpoint", endpointFlags[given])}
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	b := local.New(home, e.getenv, e.owner)
	defer b.Close()
	return do(cmd.Context(), b)
}

// doneElsewhere is err, or how another process ended that has done the rest.
func doneElsewhere(err error) error {
	done, is := errors.AsType[*backend.DoneError](err)
	switch {
	case !is:
		return err
	case done.Code == exitOK:
		return nil
	}
	return exitError(done.Code)
}

// onServer has do act on a server. The light program cannot: it becomes
// agentfense-server, with the same arguments.
func (e *env) onServer(ctx context.Context, address string, do func(context.Context, backend.Server) error) error {
	if e.parts == nil {
		return executable.ExecServer()
	}
	at, err := e.endpoint(address)
	if err != nil {
		return err
	}
	server, err := e.parts.Dial(at, e.openHome)
	if err != nil {
		return err
	}
	defer server.Close()
	return do(ctx, server)
}

// files are those for TLS.
func (e *env) files() endpoint.Files {
	o := e.at.TLS
	for _, file := range []struct {
		path     *string
		variable string
	}{{&o.CA, "AGENTFENSE_TLS_CA"}, {&o.Cert, "AGENTFENSE_TLS_CERT"}, {&o.Key, "AGENTFENSE_TLS_KEY"}} {
		if *file.path == "" {
			*file.path = e.getenv(file.variable)
		}
	}
	return o
}

// endpoint reads the address and finds what goes with it.
func (e *env) endpoint(address string) (endpoint.Endpoint, error) {
	at, err := endpoint.Parse(address, e.files())
	if err != nil {
		return at, usageError{err}
	}
	own, dir, serves := e.ownServer()
	serves = serves && own.Matches(&at)
	switch {
	case serves:
		at.Guard(own.VerifyListener(dir))
	case e.address() == "":
		return at, errNoServer
	}
	at.Token, at.TokenFrom, err = e.token()
	if at.Token == "" && err == nil && serves {
		at.Token, err = e.parts.ReadToken(own.TokenFile)
		at.TokenFrom = record.HostPath(own.TokenFile).String()
		if errdefs.Is(err, errdefs.NotFound) { // taken away to get another: it may need none
			err = nil
		}
	}
	return at, err
}

// token is the one that is given to be shown to a server, "" if none is.
func (e *env) token() (token, from string, err error) {
	path := e.at.TokenFile
	if text := e.getenv("AGENTFENSE_TOKEN"); path == "" && text != "" {
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", "", errdefs.New(errdefs.Invalid, "AGENTFENSE_TOKEN: malformed token: contains a space or a non-ASCII character")
		}
		return text, "AGENTFENSE_TOKEN", nil
	}
	if path == "" {
		path = e.getenv("AGENTFENSE_TOKEN_FILE")
	}
	if path == "" {
		return "", "", nil
	}
	token, err = e.parts.ReadToken(path)
	return token, record.HostPath(path).String(), err
}

// ownServer finds this user's server, and its state directory.
func (e *env) ownServer() (own endpoint.LocalServer, dir string, serves bool) {
	dir, err := statedir.Path(e.getenv)
	if err != nil {
		return own, "", false
	}
	own, serves = endpoint.FindDefault(dir)
	return own, dir, serves
}

// errNoServer is the error of a verb that needs a server and finds none.
var errNoServer = errdefs.New(errdefs.Unavailable, "find server: yours does not run: start `agentfense serve`, or give --endpoint")

// defaultEndpoint is the endpoint of the verbs that need a server: this user's own.
// Errors: Unavailable if it does not run.
func (e *env) defaultEndpoint() (string, error) {
	own, _, serves := e.ownServer()
	if !serves {
		return "", errNoServer
	}
	return own.Address(), nil
}

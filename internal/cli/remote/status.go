package remote

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// kindOf is service/status.go in reverse.
var kindOf = map[codes.Code]errdefs.Kind{
	codes.InvalidArgument:    errdefs.Invalid,
	codes.Unauthenticated:    errdefs.Unauthenticated,
	codes.NotFound:           errdefs.NotFound,
	codes.AlreadyExists:      errdefs.Exists,
	codes.PermissionDenied:   errdefs.Denied,
	codes.FailedPrecondition: errdefs.Precondition,
	codes.ResourceExhausted:  errdefs.Exhausted,
	codes.Unavailable:        errdefs.Unavailable,
	codes.Canceled:           errdefs.Canceled,
	codes.DeadlineExceeded:   errdefs.Deadline,
	codes.Unimplemented:      errdefs.Unsupported,
}

// failed makes the error of a call one of ours.
func (c *Client) failed(err error) error {
	if err == nil {
		return nil
	}
	if ours := (*errdefs.Error)(nil); errors.As(err, &ours) {
		return err
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		return errdefs.New(errdefs.Unavailable, "the server at %s is gone: %s", c.at, s.Message())
	case codes.Unauthenticated:
		return errdefs.New(errdefs.Unauthenticated, "the server at %s does not let you in: %s; %s", c.at, s.Message(), tokenAdvice(c.at))
	}
	err = errdefs.New(kindOf[s.Code()], "%s", s.Message())
	if c := stream.Command(s); c != "" {
		err = errdefs.New(kindOf[s.Code()], "%s%s", s.Message(), c)
	}
	if r := stream.Reason(s); r != "" {
		err = errdefs.WithReason(err, r)
	}
	if stream.NotStarted(s) {
		err = backend.NotStarted(err)
	}
	return err
}

// tokenAdvice says which token is to be shown.
func tokenAdvice(at endpoint.Endpoint) string {
	if at.Token == "" {
		return "set AGENTFENSE_TOKEN to a token of this server, or name its file with --token-file"
	}
	return "the token is from " + at.TokenFrom + ": is it one of this server's?"
}

// A cause is told by what the libraries say: they have no codes.
type cause struct {
	said   string
	advice string
}

const noAnswer = "nothing answers there: is the address right, and does a firewall let you through?"

const otherProtocol = "it speaks TLS, or is no gRPC server: write the endpoint with https://, and the address of server.grpc_addr"

// causes are tried in order.
var causes = []cause{
	{"first record does not look like a TLS handshake", "the server there speaks no TLS: write the endpoint with http://"},
	{"signed by unknown authority", "the server's certificate is of no authority known here: name its certificate with --tls-ca"},
	{"x509: certificate has expired", "the server's certificate has expired, or a clock is wrong"},
	{"x509: certificate is valid for", "the server's certificate is for another name: write the endpoint with that name"},
	{"x509: certificate is not valid for", "the server's certificate is for another name: write the endpoint with that name"},
	{"x509: cannot validate certificate for", "the server's certificate does not name this address: write the endpoint with the name that it has"},
	{"certificate required", "the server asks for a client certificate: give --tls-cert and --tls-key"},
	{"remote error: tls:", "the server does not take the client certificate: give another with --tls-cert and --tls-key"},
	{"server preface", otherProtocol},
	{"reset by peer", otherProtocol},
	{"EOF", otherProtocol},
	{"connection refused", "no server listens there: start `agentfense serve`, or give another --endpoint"},
	{"no such file or directory", "no server listens there: start `agentfense serve`, or give another --endpoint"},
	{"permission denied", "the socket is another user's"},
	{"no such host", "there is no such host: give another --endpoint"},
	{"produced zero addresses", "there is no such host: give another --endpoint"},
	{"context deadline exceeded", noAnswer},
	{"i/o timeout", noAnswer},
	{"unexpected HTTP status code", "it is no gRPC server: give the address of server.grpc_addr"},
	{"malformed header", "it is no gRPC server: give the address of server.grpc_addr"},
}

// unreachable says why a server cannot be spoken with and what to do.
func unreachable(at endpoint.Endpoint, err error) error {
	said := status.Convert(err).Message()
	for _, c := range causes {
		if strings.Contains(said, c.said) {
			return errdefs.New(errdefs.Unavailable, "server %s: %s", at, c.advice)
		}
	}
	return errdefs.New(errdefs.Unavailable, "server %s: %s", at, said)
}

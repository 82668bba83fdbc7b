package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/agentfense/agentfense/internal/lib/apiversion"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Prefixes of the calls' names.
const (
	codebasePrefix = "/sandbox.v1.CodebaseService/"
	sandboxPrefix  = "/sandbox.v1.SandboxService/"
	snapshotPrefix = "/sandbox.v1.SnapshotService/"
	historyPrefix  = "/sandbox.v1.HistoryService/"
	boardPrefix    = "/sandbox.v1.BoardService/"
	exportPrefix   = "/sandbox.v1.ExportService/"
)

// scopeOf is the scope that a caller needs for a call. A call that is not listed is refused.
var scopeOf = map[string]store.Scopes{
	codebasePrefix + "CreateCodebase": store.ScopeManage,
	codebasePrefix + "GetCodebase":    store.ScopeRead,
	codebasePrefix + "ListCodebases":  store.ScopeRead,
	codebasePrefix + "DeleteCodebase": store.ScopeManage,
	codebasePrefix + "UploadFiles":    store.ScopeManage,
	codebasePrefix + "DownloadFile":   store.ScopeRead,
	codebasePrefix + "ListFiles":      store.ScopeRead,
	codebasePrefix + "LinkCodebase":   store.ScopeManage,
	codebasePrefix + "UploadTree":     store.ScopeManage,
	codebasePrefix + "DeleteFile":     store.ScopeManage,

	sandboxPrefix + "CreateSandbox":  store.ScopeManage,
	sandboxPrefix + "GetSandbox":     store.ScopeRead,
	sandboxPrefix + "ListSandboxes":  store.ScopeRead,
	sandboxPrefix + "StartSandbox":   store.ScopeExec,
	sandboxPrefix + "StopSandbox":    store.ScopeExec,
	sandboxPrefix + "DestroySandbox": store.ScopeManage,

	sandboxPrefix + "Exec":              store.ScopeExec,
	sandboxPrefix + "ExecStream":        store.ScopeExec,
	sandboxPrefix + "Attach":            store.ScopeExec,
	sandboxPrefix + "ListExecs":         store.ScopeRead,
	sandboxPrefix + "CreateSession":     store.ScopeExec,
	sandboxPrefix + "GetSession":        store.ScopeRead,
	sandboxPrefix + "ListSessions":      store.ScopeRead,
	sandboxPrefix + "DestroySession":    store.ScopeExec,
	sandboxPrefix + "SessionExec":       store.ScopeExec,
	sandboxPrefix + "SessionExecStream": store.ScopeExec,

	sandboxPrefix + "Diff":          store.ScopeRead,
	sandboxPrefix + "ReadChanges":   store.ScopeRead,
	sandboxPrefix + "Apply":         store.ScopeApply,
	sandboxPrefix + "Discard":       store.ScopeApply,
	sandboxPrefix + "ListCommits":   store.ScopeRead,
	sandboxPrefix + "ApplyCommits":  store.ScopeApply,
	sandboxPrefix + "SetPolicy":     store.ScopeManage,
	sandboxPrefix + "ChangeHosts":   store.ScopeManage,
	sandboxPrefix + "UpdateSandbox": store.ScopeManage,
	sandboxPrefix + "GrantPath":     store.ScopeManage,
	sandboxPrefix + "ListAsks":      store.ScopeRead,
	sandboxPrefix + "AnswerAsk":     store.ScopeManage,
	sandboxPrefix + "ExplainPolicy": store.ScopeRead,
	sandboxPrefix + "ListView":      store.ScopeRead,
	sandboxPrefix + "ReadView":      store.ScopeRead,
	sandboxPrefix + "WatchView":     store.ScopeRead,
	sandboxPrefix + "Audit":         store.ScopeRead,
	sandboxPrefix + "Logs":          store.ScopeRead,
	sandboxPrefix + "GetStats":      store.ScopeRead,

	snapshotPrefix + "CreateSnapshot":  store.ScopeExec,
	snapshotPrefix + "ListSnapshots":   store.ScopeRead,
	snapshotPrefix + "DeleteSnapshot":  store.ScopeApply,
	snapshotPrefix + "RestoreSnapshot": store.ScopeApply,
	snapshotPrefix + "ForkSandbox":     store.ScopeManage,
	snapshotPrefix + "MergeSandbox":    store.ScopeApply,
	snapshotPrefix + "CompareStates":   store.ScopeRead,
	historyPrefix + "ListTransactions": store.ScopeRead,
	historyPrefix + "Undo":             store.ScopeApply,
	historyPrefix + "Redo":             store.ScopeApply,
	boardPrefix + "LockPaths":          store.ScopeExec,
	boardPrefix + "UnlockPaths":        store.ScopeExec,
	boardPrefix + "ListLocks":          store.ScopeRead,
	boardPrefix + "PostMessage":        store.ScopeExec,
	boardPrefix + "ReadMessages":       store.ScopeRead,
	boardPrefix + "WatchMessages":      store.ScopeRead,
	boardPrefix + "GetBoard":           store.ScopeRead,
	exportPrefix + "ExportChanges":     store.ScopeRead,
	exportPrefix + "QuerySandbox":      store.ScopeRead,
}

// Health needs no credentials. Reflection needs them, but no scope: it shows only what is
// documented.
const (
	healthPrefix     = "/grpc.health.v1."
	reflectionPrefix = "/grpc.reflection."
)

type callerKey struct{}

// callerOf returns who makes the call; the zero Caller may do nothing.
func callerOf(ctx context.Context) auth.Caller {
	caller, _ := ctx.Value(callerKey{}).(auth.Caller)
	return caller
}

// mayKnowPolicy reports whether the caller may know the rules of its sandboxes: with the scope read
// or manage.
func mayKnowPolicy(ctx context.Context) bool {
	return callerOf(ctx).Scopes&(store.ScopeRead|store.ScopeManage) != 0
}

// AuthInterceptor authenticates callers and converts errors to those of gRPC.
type AuthInterceptor struct {
	service *Service
	// certKey names the metadata with the DER form of a certificate that was
	// verified elsewhere; "" where everybody can connect.
	certKey string
	// anonymous limits the health calls without credentials.
	anonymous *workers
}

// AuthInterceptor returns the interceptor of calls from the network.
func (s *Service) AuthInterceptor() AuthInterceptor { return s.GatewayInterceptor("") }

// GatewayInterceptor returns the interceptor of a gateway's calls. The gateway puts the client
// certificate that it verified into the metadata key.
func (s *Service) GatewayInterceptor(key string) AuthInterceptor {
	return AuthInterceptor{service: s, certKey: key, anonymous: new(workers)}
}

// shown returns the credentials of a call.
func (d AuthInterceptor) shown(ctx context.Context) (auth.Credentials, error) {
	var c auth.Credentials
	md, _ := metadata.FromIncomingContext(ctx)
	c.Authorization = md.Get("authorization")
	if d.certKey != "" {
		for _, der := range md.Get(d.certKey) {
			cert, err := x509.ParseCertificate([]byte(der))
			if err != nil {
				return c, errdefs.New(errdefs.Unauthenticated, "client certificate: %w", err)
			}
			c.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
		}
		return c, nil
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			c.TLS = &info.State
		}
	}
	return c, nil
}

// identify returns who makes a call.
func (d AuthInterceptor) identify(ctx context.Context) (auth.Caller, error) {
	shown, err := d.shown(ctx)
	if err != nil {
		return auth.Caller{}, err
	}
	return d.service.auth.Identify(ctx, shown)
}

// place is the connection of a call, as package connlimit counts it.
type place interface {
	// Admit reports that the connection has valid credentials. Errors: Exhausted.
	Admit() error
	// Stay reports a call without credentials, which lasts until leave is called.
	Stay() (leave func())
	// Peer names the other end of the connection.
	Peer() string
}

func placeOf(ctx context.Context) (place, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, false
	}
	at, ok := p.Addr.(place)
	return at, ok
}

// enter is identify, and counts the connection as one with credentials.
func (d AuthInterceptor) enter(ctx context.Context) (auth.Caller, error) {
	caller, err := d.identify(ctx)
	if at, ok := placeOf(ctx); ok && err == nil {
		err = at.Admit()
	}
	return caller, err
}

// admit authenticates and authorizes a call.
func (d AuthInterceptor) admit(ctx context.Context, method string) (context.Context, error) {
	if _, admitted := ctx.Value(callerKey{}).(auth.Caller); admitted || strings.HasPrefix(method, healthPrefix) {
		return ctx, nil
	}
	caller, err := d.enter(ctx)
	if err != nil {
		return ctx, err
	}
	if !strings.HasPrefix(method, reflectionPrefix) {
		need, known := scopeOf[method]
		if !known {
			return ctx, unimplemented(method, "no such call")
		}
		if err := caller.Require(need); err != nil {
			return ctx, err
		}
	}
	return context.WithValue(ctx, callerKey{}, caller), nil
}

// Tap refuses calls by their headers. An interceptor would be too late: gRPC reads the whole
// request before it, and keeps it in memory even for a client that sends slowly.
func (d AuthInterceptor) Tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if strings.HasPrefix(info.FullMethodName, healthPrefix) {
		return d.admitAnonymous(ctx), nil
	}
	ctx, err := d.admit(ctx, info.FullMethodName)
	if caller := callerOf(ctx); err == nil && !caller.Operator {
		err = d.service.calls.begin(ctx, caller.Owner, d.service.config.Limits.CallsPerOwner)
	}
	return ctx, d.service.toStatus(ctx, info.FullMethodName, err)
}

// admitAnonymous gives who calls as ctx a admitAnonymous, unless they show that they need none.
func (d AuthInterceptor) admitAnonymous(ctx context.Context) context.Context {
	if _, err := d.enter(ctx); err == nil {
		return ctx
	}
	at, ok := placeOf(ctx)
	if !ok {
		return d.anonymous.take(ctx, "")
	}
	ctx = d.anonymous.take(ctx, at.Peer())
	context.AfterFunc(ctx, at.Stay())
	return ctx
}

// Known refuses a caller without valid credentials in the metadata of ctx. The peer of ctx is the
// connection.
func (d AuthInterceptor) Known(ctx context.Context) error {
	_, err := d.enter(ctx)
	return d.service.toStatus(ctx, "any", err)
}

// Unary is an interceptor.
func (d AuthInterceptor) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, err := d.admit(ctx, info.FullMethod)
	if err == nil {
		err = checkLevel(ctx, info.FullMethod, request)
	}
	if err != nil {
		return nil, d.service.toStatus(ctx, info.FullMethod, err)
	}
	var answer any
	err = survive(func() (err error) {
		answer, err = handle(ctx, request)
		return err
	})
	if err == nil {
		err = checkSize(answer)
	}
	if err != nil {
		return nil, d.service.toStatus(ctx, info.FullMethod, err)
	}
	return answer, nil
}

// checkSize refuses an answer that is larger than clients accept. Errors: Exhausted.
func checkSize(answer any) error {
	m, is := answer.(proto.Message)
	if !is {
		return nil
	}
	if size := proto.Size(m); size > apiversion.MaxAnswerBytes {
		return errdefs.New(errdefs.Exhausted, "answer of %d bytes is larger than %d: ask for less at once, for example for one directory at a time", size, apiversion.MaxAnswerBytes)
	}
	return nil
}

// Stream is Unary for streams.
func (d AuthInterceptor) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, err := d.admit(stream.Context(), info.FullMethod)
	if err == nil {
		err = survive(func() error { return handle(server, admitted{stream, ctx, info.FullMethod}) })
	}
	return d.service.toStatus(ctx, info.FullMethod, err)
}

// survive turns a panic of a call into its error, because the panic would end the server.
func survive(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errdefs.New(errdefs.Internal, "panic: %v\n%s", r, debug.Stack())
		}
	}()
	return call()
}

// admitted is a stream whose context has the caller.
type admitted struct {
	grpc.ServerStream
	ctx    context.Context
	method string
}

func (a admitted) Context() context.Context { return a.ctx }

// RecvMsg implements grpc.ServerStream.
func (a admitted) RecvMsg(m any) error {
	if err := a.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return checkLevel(a.ctx, a.method, m)
}

// checkLevel refuses a request with fields that this server does not know, which a newer program
// sends. It puts the server's API level into the header of a health call.
func checkLevel(ctx context.Context, method string, request any) error {
	if strings.HasPrefix(method, healthPrefix) {
		return grpc.SetHeader(ctx, metadata.Pairs(apiversion.Header, apiversion.Here().String()))
	}
	m, ok := request.(proto.Message)
	if !ok || strings.HasPrefix(method, reflectionPrefix) {
		return nil
	}
	if unknown := apiversion.Unknown(m); unknown != "" {
		return unimplemented(method, unknown)
	}
	return nil
}

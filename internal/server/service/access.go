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
)

// scopeOf says what a caller needs for a call. A call that is not here is
// refused.
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
	sandboxPrefix + "SetPolicy":     store.ScopeManage,
	sandboxPrefix + "ExplainPolicy": store.ScopeRead,
	sandboxPrefix + "ListView":      store.ScopeRead,
	sandboxPrefix + "ReadView":      store.ScopeRead,
	sandboxPrefix + "WatchView":     store.ScopeRead,
	sandboxPrefix + "Audit":         store.ScopeRead,
	sandboxPrefix + "Logs":          store.ScopeRead,
	sandboxPrefix + "GetStats":      store.ScopeRead,
}

// Health is for whoever can reach the server; reflection tells what
// docs say, to every caller.
const (
	healthPrefix     = "/grpc.health.v1."
	reflectionPrefix = "/grpc.reflection."
)

type callerKey struct{}

// callerOf returns who makes the call; nobody may do nothing.
func callerOf(ctx context.Context) auth.Caller {
	caller, _ := ctx.Value(callerKey{}).(auth.Caller)
	return caller
}

// mayKnowPolicy reports whether the rules of a sandbox are told to the caller: one
// who may read, or set them.
func mayKnowPolicy(ctx context.Context) bool {
	return callerOf(ctx).Scopes&(store.ScopeRead|store.ScopeManage) != 0
}

// AuthInterceptor lets callers in and makes errors those of gRPC.
type AuthInterceptor struct {
	service *Service
	// certKey names the metadata with the DER form of a certificate that was
	// verified elsewhere; "" for a door that everybody can reach.
	certKey string
	// anonymous connections are those who ask how the server is and show nothing.
	anonymous *workers
}

// AuthInterceptor returns what stands before the calls that come from the network.
func (s *Service) AuthInterceptor() AuthInterceptor { return s.GatewayInterceptor("") }

// GatewayInterceptor returns what stands before the calls of a gateway, which tells
// by the metadata key which client certificate it has verified.
func (s *Service) GatewayInterceptor(key string) AuthInterceptor {
	return AuthInterceptor{service: s, certKey: key, anonymous: new(workers)}
}

// shown returns what a call shows of its caller.
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

// identify tells who makes a call.
func (d AuthInterceptor) identify(ctx context.Context) (auth.Caller, error) {
	shown, err := d.shown(ctx)
	if err != nil {
		return auth.Caller{}, err
	}
	return d.service.auth.Identify(ctx, shown)
}

// place is the place of a call's connection among those of the server.
type place interface {
	// Admit tells that credentials were shown. Errors: Exhausted.
	Admit() error
	// Stay tells of a call without, until leave is called.
	Stay() (leave func())
	// Peer names who has the connection.
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

// enter is identify, and gives the connection a place among those that are
// known.
func (d AuthInterceptor) enter(ctx context.Context) (auth.Caller, error) {
	caller, err := d.identify(ctx)
	if at, ok := placeOf(ctx); ok && err == nil {
		err = at.Admit()
	}
	return caller, err
}

// admit lets a caller in who may make the call.
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

// Tap refuses calls by their heads. Interceptors come too late: before them gRPC
// has read a whole request, and keeps it in memory for whoever sends it slowly.
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

// Known refuses whoever makes the calls with the incoming metadata of ctx if
// they may make none. The peer of ctx is whose connection it is.
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

// checkSize refuses an answer that clients do not take. Errors: Exhausted.
func checkSize(answer any) error {
	m, is := answer.(proto.Message)
	if !is {
		return nil
	}
	if size := proto.Size(m); size > apiversion.MaxAnswerBytes {
		return errdefs.New(errdefs.Exhausted, "the answer: %d bytes are more than %d: ask for less at once, such as for one directory after the other", size, apiversion.MaxAnswerBytes)
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

// survive makes a panic of a call its error: it would end the server for all.
func survive(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errdefs.New(errdefs.Internal, "panic: %v\n%s", r, debug.Stack())
		}
	}()
	return call()
}

// admitted is a stream whose context knows the caller.
type admitted struct {
	grpc.ServerStream
	ctx    context.Context
	method string
}

func (a admitted) Context() context.Context { return a.ctx }

// RecvMsg is grpc.ServerStream's.
func (a admitted) RecvMsg(m any) error {
	if err := a.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return checkLevel(a.ctx, a.method, m)
}

// checkLevel refuses a request of a newer program that asks for what is not
// known here, and tells whoever asks how we are which level that is.
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

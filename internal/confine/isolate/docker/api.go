package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// api is a client of a docker daemon. The docker project's own client would cost each of
// our processes, including exec leaders, two milliseconds and half a megabyte at its start
// (docs/adr/0012-docker.md).
type api struct {
	http    *http.Client
	address string
	version string // "/v1.41"; empty before agree
}

// defaultHost is the default of the docker project's own client.
const defaultHost = "unix:///var/run/docker.sock"

// newAPI returns an api for the daemon at host. Errors: Unsupported.
func newAPI(host string) (*api, error) {
	socket, isUnix := strings.CutPrefix(host, "unix://")
	if !isUnix {
		return nil, errdefs.New(errdefs.Unsupported, "docker: the daemon %s is not at a unix socket of this host, so a container cannot mount the view", host)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &api{http: &http.Client{Transport: &http.Transport{DialContext: dial}}, address: host}, nil
}

// close drops idle connections. The api can still be used.
func (a *api) close() { a.http.CloseIdleConnections() }

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 4 << 20

// daemonError is an error status of the daemon.
type daemonError struct {
	status int
	text   string
}

func (e *daemonError) Error() string { return e.text }

// isStatus reports whether err is a daemonError with this status.
func isStatus(err error, status int) bool {
	refused, ok := errors.AsType[*daemonError](err)
	return ok && refused.status == status
}

// call makes a request and decodes the answer into answer, unless that is nil. Errors: those of
// do; Unsupported for an answer of another form.
func (a *api) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	response, err := a.do(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return a.unanswered(ctx, err)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return errdefs.New(errdefs.Unsupported, "docker: answer to %s: %w", path, err)
	}
	return nil
}

// do makes a request and returns the answer, with its body. Errors: Unsupported if no daemon
// answers; Deadline, Canceled; else a daemonError with the kind of its status.
func (a *api) do(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "docker: %w", err)
	}
	target := &url.URL{Scheme: "http", Host: "docker", Path: a.version + path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(text))
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "docker: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.http.Do(request)
	if err != nil {
		return nil, a.unanswered(ctx, err)
	}
	if response.StatusCode < http.StatusBadRequest {
		return response, nil
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return nil, a.unanswered(ctx, err)
	}
	return nil, refusal(response.StatusCode, text)
}

// unanswered explains a request without an answer.
func (a *api) unanswered(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errdefs.New(errdefs.Deadline, "docker: the daemon did not answer in time: %w", err)
	case ctx.Err() != nil:
		return errdefs.New(errdefs.Canceled, "docker: %w", err)
	}
	cause := err
	if u := (*url.Error)(nil); errors.As(err, &u) {
		cause = u.Err
	}
	return errdefs.New(errdefs.Unsupported, "docker: no daemon answers at %s: %w; %s", a.address, cause, installHint)
}

// refusal is the error for an error status.
func refusal(status int, text []byte) error {
	var answer struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Message == "" {
		answer.Message = fmt.Sprintf("status %d", status)
	}
	kind := errdefs.Unsupported
	switch status {
	case http.StatusBadRequest:
		kind = errdefs.Invalid
	case http.StatusNotFound:
		kind = errdefs.NotFound
	case http.StatusConflict:
		kind = errdefs.Precondition
	}
	return errdefs.New(kind, "docker: %w", &daemonError{status, answer.Message})
}

// The oldest API version, that of Docker 20.10. Our requests mean the same in every later
// version.
const minMajor, minMinor = 1, 41

// agree chooses the API version: the oldest that this package and the daemon support.
func (a *api) agree(ctx context.Context) error {
	var daemon struct{ APIVersion, MinAPIVersion string }
	if err := a.call(ctx, http.MethodGet, "/version", nil, nil, &daemon); err != nil {
		return err
	}
	version := fmt.Sprintf("%d.%d", minMajor, minMinor)
	if !isAtLeast(daemon.APIVersion, version) {
		return errdefs.New(errdefs.Unsupported, "docker: the daemon's API is %q, %s or later is needed (Docker 20.10)", daemon.APIVersion, version)
	}
	if isAtLeast(daemon.MinAPIVersion, version) {
		version = daemon.MinAPIVersion
	}
	a.version = "/v" + version
	return nil
}

// isAtLeast reports whether version is least or later, as "1.41". It returns false if one
// is malformed.
func isAtLeast(version, least string) bool {
	var major, minor, leastMajor, leastMinor int
	if n, _ := fmt.Sscanf(version+" "+least, "%d.%d %d.%d", &major, &minor, &leastMajor, &leastMinor); n != 4 {
		return false
	}
	return major > leastMajor || major == leastMajor && minor >= leastMinor
}

// daemonInfo describes a daemon and its host.
type daemonInfo struct {
	OSType          string
	SecurityOptions []string
	MemoryLimit     bool
	PidsLimit       bool
	CPUCfsPeriod    bool `json:"CpuCfsPeriod"`
	CPUCfsQuota     bool `json:"CpuCfsQuota"`
	CPUShares       bool
}

func (a *api) info(ctx context.Context) (daemonInfo, error) {
	var info daemonInfo
	return info, a.call(ctx, http.MethodGet, "/info", nil, nil, &info)
}

// volumes returns the directories that an image declares as volumes. Errors: NotFound if
// the daemon does not have the image.
func (a *api) volumes(ctx context.Context, image string) ([]string, error) {
	var answer struct {
		Config struct{ Volumes map[string]struct{} }
	}
	if err := a.call(ctx, http.MethodGet, "/images/"+image+"/json", nil, nil, &answer); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(answer.Config.Volumes)), nil
}

// created is a new container.
type created struct {
	ID       string
	Warnings []string
}

func (a *api) create(ctx context.Context, name string, c container) (created, error) {
	var answer created
	return answer, a.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, c, &answer)
}

// start starts a container and returns the pid of its PID 1, or 0 if that has ended.
func (a *api) start(ctx context.Context, id string) (int, error) {
	if err := a.call(ctx, http.MethodPost, "/containers/"+id+"/start", nil, nil, nil); err != nil {
		return 0, err
	}
	var answer struct{ State struct{ Pid int } }
	err := a.call(ctx, http.MethodGet, "/containers/"+id+"/json", nil, nil, &answer)
	return answer.State.Pid, err
}

// wait waits for a container's end and returns its exit status.
func (a *api) wait(ctx context.Context, id string) (int64, error) {
	var answer struct{ StatusCode int64 }
	err := a.call(ctx, http.MethodPost, "/containers/"+id+"/wait", url.Values{"condition": {"not-running"}}, nil, &answer)
	return answer.StatusCode, err
}

// listed is a container of a listing.
type listed struct {
	ID     string `json:"Id"`
	Labels map[string]string
}

// list lists the containers with a label, including those that have ended.
func (a *api) list(ctx context.Context, label string) ([]listed, error) {
	filters, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "docker: %w", err)
	}
	var answer []listed
	query := url.Values{"all": {"1"}, "filters": {string(filters)}}
	return answer, a.call(ctx, http.MethodGet, "/containers/json", query, nil, &answer)
}

// remove ends and removes a container with its volumes. It succeeds if there is no such
// container.
func (a *api) remove(ctx context.Context, name string) error {
	err := a.call(ctx, http.MethodDelete, "/containers/"+name, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

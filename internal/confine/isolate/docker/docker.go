// Package docker starts sandboxes as containers of a docker daemon on this host, with API
// 1.41 (Docker 20.10) or later.
//
// The daemon makes the namespaces, the root file system from an image, and the control
// groups. The host files that the sandbox sees are mounted below the sandbox's directory,
// where the daemon finds them. PID 1 is our binary, mounted read-only. Package fdpass
// passes it the guest socket and our seccomp filter, which applies in addition to the
// daemon's. The daemon's socket never enters a sandbox.
//
// A sandbox lives as long as its supervisor: PID 1 ends when the other end of the guest
// socket is closed. Kill does not need the daemon either. A killed supervisor may leave an
// ended container and mounts, which Clear and the next Start remove.
package docker

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/confine/isolate/fdpass"
	"github.com/agentfense/agentfense/internal/confine/seccomp"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Options has the settings of an Isolator.
type Options struct {
	// Host is the daemon's socket, such as "unix:///run/docker.sock"; empty
	// means HostVariable, then DOCKER_HOST, then the docker client's default.
	Host string
}

// HostVariable is the environment variable with the daemon's socket. It is the
// configuration key runtime.docker.host.
const HostVariable = "AGENTFENSE_RUNTIME_DOCKER_HOST"

// Isolator is an isolate.Isolator. It is safe for concurrent use.
type Isolator struct{ host string }

// New returns an Isolator. Only Start and Probe connect to the daemon.
func New(o Options) *Isolator { return &Isolator{host: o.Host} }

// containerName returns the name of the container of a sandbox.
func containerName(id string) string { return "agentfense-" + id }

// Start implements isolate.Isolator, for root only: the calling process must be in the
// daemon's mount namespace, so that the daemon sees its mounts.
func (d *Isolator) Start(ctx context.Context, spec isolate.Spec) (isolate.Process, error) {
	defer spec.Guest.Close()
	plan, err := newPlan(spec)
	if err != nil {
		return nil, err
	}
	a, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{api: a, id: spec.ID, dir: spec.Dir, complaints: isolate.Complaints{To: spec.Stderr}, done: make(chan struct{})}
	if err := p.prepare(ctx, plan); err != nil {
		return nil, err
	}
	if err := p.launch(ctx, plan); err != nil {
		return nil, errors.Join(err, p.abandon())
	}
	return p, nil
}

// prepare makes all requests that precede the creation of the container, concurrently.
func (p *process) prepare(ctx context.Context, plan *plan) error {
	var volumes []string
	errs := make([]error, 3) // in the order of precedence
	var asked sync.WaitGroup
	asked.Go(func() { errs[0] = p.api.check(ctx, plan.spec.Limits) })
	asked.Go(func() { errs[1] = clear(ctx, p.api, p.id, p.dir) })
	asked.Go(func() { volumes, errs[2] = p.api.volumes(ctx, plan.spec.Image) })
	asked.Wait()
	for _, err := range errs {
		if err != nil {
			return imageError(err, plan.spec.Image)
		}
	}
	return plan.addVolumes(volumes)
}

// imageError adds the fix if the daemon does not have the image.
func imageError(err error, image string) error {
	if isStatus(err, http.StatusNotFound) {
		return errdefs.New(errdefs.Precondition, "%w; run: docker pull %s", err, image)
	}
	return err
}

// launch starts the container, until PID 1 runs.
func (p *process) launch(ctx context.Context, plan *plan) error {
	stage, err := plan.stage()
	if err != nil {
		return err
	}
	offer, err := fdpass.Listen(stage, socketName, plan.spec.HostUID)
	if err != nil {
		return err
	}
	defer offer.Close()
	if err := p.readCertificates(ctx, plan); err != nil {
		return err
	}
	if err := plan.certificates.write(stage); err != nil {
		return err
	}
	if err := p.create(ctx, plan); err != nil {
		return err
	}
	pid, err := p.api.start(ctx, p.container)
	if err != nil {
		return err
	}
	peer, err := p.await(ctx, offer, pid, plan.spec.HostUID)
	if err != nil {
		return err
	}
	defer peer.Close()
	err = plan.verify(peer.PID)
	if err == nil && plan.spec.MakeNet != nil {
		err = makeNet(peer, plan.spec.MakeNet)
	}
	if err != nil {
		peer.PIDFD.Close()
		return err
	}
	return p.give(peer, &plan.spec)
}

// makeNet has the network made in the namespace of PID 1, which waits for its descriptors.
func makeNet(peer *fdpass.Peer, makeNet func(namespace *os.File) error) error {
	namespace, err := peer.NetNS()
	if err != nil {
		return err
	}
	defer namespace.Close()
	return makeNet(namespace)
}

// create makes the container.
func (p *process) create(ctx context.Context, plan *plan) error {
	made, err := p.api.create(ctx, containerName(plan.spec.ID), plan.container())
	if err != nil {
		return imageError(err, plan.spec.Image)
	}
	p.container = made.ID
	for _, w := range made.Warnings {
		// "… Limitation discarded.", "Memory limited without swap."
		if plan.spec.Limits != (isolate.ProcessLimits{}) && !strings.Contains(w, "without swap") {
			return errdefs.New(errdefs.Unsupported, "create container: docker warns: %s", strings.TrimSpace(w))
		}
	}
	return nil
}

// await waits until PID 1 connects to offer, or ends.
func (p *process) await(ctx context.Context, offer *fdpass.Offer, pid, uid int) (*fdpass.Peer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		status, err := p.api.wait(ctx, p.container)
		if err == nil {
			err = errdefs.New(errdefs.Unsupported, "start sandbox: PID 1 ended with status %d before it connected; is the image for this machine's architecture?", status)
		}
		cancel(err)
	}()
	peer, err := offer.Accept(ctx, pid, uid)
	var why *errdefs.Error
	if err != nil && errors.As(context.Cause(ctx), &why) {
		err = why
	}
	cancel(nil)
	<-watched
	return peer, err
}

// give passes PID 1 its descriptors and starts to watch it.
func (p *process) give(peer *fdpass.Peer, spec *isolate.Spec) error {
	p.pid, p.init = peer.PID, peer.PIDFD
	filter, err := seccomp.Filter(spec.UID, spec.GID)
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return errdefs.New(errdefs.Exhausted, "start sandbox: %w", err)
	}
	defer write.Close()
	// Ends of os.Pipe are non-blocking, which programs inside do not expect.
	if err = unix.SetNonblock(int(write.Fd()), false); err == nil {
		err = peer.Give(filter, spec.Guest, write)
	}
	if err != nil {
		read.Close()
		return errdefs.New(errdefs.Internal, "start sandbox: %w", err)
	}
	go p.run(read)
	return nil
}

// dial connects to the daemon and checks it.
func (d *Isolator) dial(ctx context.Context, limits isolate.ProcessLimits) (*api, error) {
	a, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	return a, a.check(ctx, limits)
}

// connect connects to the daemon.
func (d *Isolator) connect(ctx context.Context) (*api, error) {
	a, err := newAPI(cmp.Or(d.host, os.Getenv(HostVariable), os.Getenv("DOCKER_HOST"), defaultHost))
	if err != nil {
		return nil, err
	}
	return a, a.agree(ctx)
}

// check checks that the daemon supports what a sandbox with limits needs.
func (a *api) check(ctx context.Context, limits isolate.ProcessLimits) error {
	info, err := a.info(ctx)
	if err != nil {
		return err
	}
	return checkDaemon(info, limits)
}

// removeTimeout limits the requests at the end of a sandbox.
const removeTimeout = 4 * time.Second

// Clear ends and removes what a killed supervisor has left of the sandbox with this id and
// directory. It connects to the daemon only if there is something to remove.
func (d *Isolator) Clear(ctx context.Context, id, dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, stageName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	a, err := d.dial(ctx, isolate.ProcessLimits{})
	if err != nil {
		return err
	}
	defer a.close()
	return clear(ctx, a, id, dir)
}

// Sweep calls each for each container of a sandbox, with the sandbox's id and directory,
// and a function that ends and removes the container. Errors: Unsupported if no daemon
// answers; those of each.
func (d *Isolator) Sweep(ctx context.Context, each func(id, dir string, remove func() error) error) error {
	a, err := d.dial(ctx, isolate.ProcessLimits{})
	if err != nil {
		return err
	}
	defer a.close()
	containers, err := a.list(ctx, label)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers {
		errs = append(errs, each(c.Labels[label], c.Labels[dirLabel], func() error { return a.remove(ctx, c.ID) }))
	}
	return errors.Join(errs...)
}

// ClearStage removes the mounts for a container in a sandbox's directory. The container
// must have been removed.
func ClearStage(dir string) error { return clearStage(dir) }

// clear removes the container, and then the stage. The stage's directory indicates that a
// container may exist, so it goes last.
func clear(ctx context.Context, a *api, id, dir string) error {
	if err := a.remove(ctx, containerName(id)); err != nil {
		return err
	}
	return clearStage(dir)
}

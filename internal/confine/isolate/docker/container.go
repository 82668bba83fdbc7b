package docker

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/confine/isolate/fdpass"
)

// container is the body of the API's request to create a container.
type container struct {
	Image       string
	Hostname    string
	Domainname  string
	User        string
	Entrypoint  []string
	Cmd         []string
	Env         []string
	WorkingDir  string
	Labels      map[string]string
	Healthcheck healthcheck
	HostConfig  hostConfig
}

type healthcheck struct{ Test []string }

type hostConfig struct {
	Init           bool
	NetworkMode    string
	LogConfig      logConfig
	CapDrop        []string
	SecurityOpt    []string
	CgroupnsMode   string
	IpcMode        string
	UsernsMode     string
	ReadonlyRootfs bool
	MaskedPaths    []string
	Tmpfs          map[string]string
	Mounts         []bind

	Memory     int64
	MemorySwap int64
	NanoCPUs   int64  `json:"NanoCpus"`
	CPUShares  int64  `json:"CpuShares"`
	PidsLimit  *int64 `json:",omitempty"`
	Ulimits    []ulimit
}

type logConfig struct{ Type string }

type ulimit struct {
	Name       string
	Soft, Hard int64
}

type bind struct {
	Type           string
	Source, Target string
	ReadOnly       bool
	BindOptions    bindOptions
}

type bindOptions struct {
	Propagation  string
	NonRecursive bool
}

// The labels of our containers: the sandbox's id, and its directory, which distinguishes
// several state directories.
const (
	label    = "agentfense.sandbox"
	dirLabel = "agentfense.directory"
)

func (p *plan) container() container {
	s := p.spec
	return container{
		Image:       s.Image,
		Hostname:    s.Hostname,
		Domainname:  "localdomain", // else the host's
		User:        fmt.Sprintf("%d:%d", s.UID, s.GID),
		Entrypoint:  append([]string{initPath, fdpass.Verb, socketPath}, s.InitArgs...),
		Cmd:         []string{}, // replaces the image's
		Env:         s.InitEnv,
		WorkingDir:  "/",
		Labels:      p.labels(),
		Healthcheck: healthcheck{[]string{"NONE"}}, // a health check of the image would run commands
		HostConfig:  p.hostConfig(),
	}
}

var networkModes = map[isolate.Net]string{
	isolate.NetNone: "none", isolate.NetHost: "host", isolate.NetBridge: "bridge", isolate.NetNamed: "none",
}

// labels are those by which a container of the sandbox is found.
func (p *plan) labels() map[string]string {
	return map[string]string{label: p.spec.ID, dirLabel: p.spec.Dir}
}

// hostConfig has the confinement. Memory is limited together with swap. Otherwise a sandbox
// could fill the host's swap beyond its memory limit. The core limit is one byte, because
// with 0 the kernel still pipes dumps to the host's core_pattern program (fs/coredump.c).
func (p *plan) hostConfig() hostConfig {
	limits := p.spec.Limits
	h := hostConfig{
		NetworkMode:    networkModes[p.spec.Net],
		LogConfig:      logConfig{"none"},
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		CgroupnsMode:   "private",
		IpcMode:        "private",
		UsernsMode:     "host", // if the daemon mapped ids, they would differ from the view's
		ReadonlyRootfs: true,
		MaskedPaths:    p.covers,
		Tmpfs:          p.private(),
		Mounts:         p.binds(),
		Memory:         limits.MemoryBytes,
		MemorySwap:     limits.MemoryBytes,
		NanoCPUs:       int64(limits.CPUs * 1e9),
		CPUShares:      limits.CPUShares,
		Ulimits:        []ulimit{{Name: "core", Soft: 1, Hard: 1}},
	}
	if limits.PIDs > 0 {
		h.PidsLimit = &limits.PIDs
	}
	return h
}

// binds returns the mounts of the host's files. A read-only mount does not include the
// mounts below it, because the API has no recursive read-only before 1.44.
func (p *plan) binds() []bind {
	s := p.spec
	mount := func(source, target string, o bindOptions) bind {
		return bind{Type: "bind", Source: source, Target: target, BindOptions: o}
	}
	readOnly := func(source, target string) bind {
		b := mount(source, target, bindOptions{Propagation: "rprivate", NonRecursive: true})
		b.ReadOnly = true
		return b
	}
	stage := path.Join(s.Dir, stageName)
	var binds []bind
	for _, view := range p.views() {
		binds = append(binds, mount(path.Join(view.Source, view.View), view.Target, bindOptions{Propagation: "rslave"}))
	}
	if s.Notes != "" {
		binds = append(binds, readOnly(s.Notes, insideDir))
	}
	binds = append(binds, readOnly(s.Init, initPath), readOnly(path.Join(stage, socketName), socketPath))
	for _, name := range slices.Sorted(maps.Keys(p.etc())) {
		binds = append(binds, readOnly(path.Join(stage, name), path.Join("/etc", name)))
	}
	for _, target := range slices.Sorted(maps.Keys(p.certificates.targets())) {
		binds = append(binds, readOnly(path.Join(stage, p.certificates.targets()[target]), target))
	}
	if p.hasAlias() {
		binds = append(binds, mount(path.Join(s.View, s.ViewName), isolate.Workspace, bindOptions{Propagation: "rslave"}))
	}
	if s.DevPTS != "" {
		binds = append(binds, mount(s.DevPTS, "/dev/pts", bindOptions{Propagation: "rprivate"}))
	}
	for _, m := range p.mounts {
		if m.View == "" {
			binds = append(binds, readOnly(m.Source, m.Target))
		}
	}
	return binds
}

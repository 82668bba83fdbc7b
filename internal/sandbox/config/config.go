// Package config reads the server's configuration: the keys, their defaults, the YAML file,
// the environment, and invalid combinations. It reads only the given file. It does not
// check whether an address or a program is available.
//
// A key is written SECTION.NAME. In the file sections are mappings; in the environment the
// variable is AGENTFENSE_SECTION_NAME. Precedence: environment, file, default. An unknown
// key or an invalid value is an error with its place, and is never ignored.
package config

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/audit/export"
)

// Config is the whole configuration. A path that is "" is in the state directory, see
// UnderHome.
type Config struct {
	Server  Server
	Auth    Auth
	Storage Storage
	Runtime Runtime
	Network Network
	Mounts  Mounts
	Secrets []Secret
	Sandbox Sandbox
	Limits  ServerLimits
	Audit   Audit
	Export  AuditExport
	History History
	Logging Logging
}

// Server says where the server listens.
type Server struct {
	GRPCAddr string // host:port or unix:///path
	HTTPAddr string // host:port; "" means no REST
	TLS      TLS
}

// TLS names the PEM files of both listeners. Either all are "", or Cert and Key are set.
type TLS struct {
	Cert, Key string
	// ClientCA, if set, is the CA of the certificates that clients must present.
	ClientCA string
}

// Enabled reports whether the listeners speak TLS.
func (t TLS) Enabled() bool { return t.Cert != "" }

// Auth has the settings of authentication.
type Auth struct {
	TokenFile string // of the default token
}

// Storage has the paths of the server's data.
type Storage struct {
	CodebasePath string // directory of the uploaded codebases
	MountPath    string // deprecated and ignored: a view is mounted in its sandbox's directory
	DBPath       string // SQLite database
}

// RuntimeType is what confines a sandbox's processes.
type RuntimeType string

// The runtimes.
const (
	Bwrap  RuntimeType = "bwrap"
	Docker RuntimeType = "docker"
)

// Runtime has the settings of runtimes.
type Runtime struct {
	Type           RuntimeType   // the default of sandboxes
	Allowed        []RuntimeType // that a client may request; empty: only Type
	BwrapPath      string        // program; without a / it is searched in PATH
	DefaultTimeout time.Duration // default of an exec; 0: none
	MaxTimeout     time.Duration // maximum that an exec may request; 0: no limit
	Docker         DockerRuntime
}

// DockerRuntime has the settings of containers.
type DockerRuntime struct {
	Host         string // of the daemon, such as unix:///run/docker.sock; "": the client's default
	DefaultImage string
	Images       []string // that a client may request in addition to DefaultImage; see Allows
	NetworkMode  NetworkMode
	// EnableNetworking allows a NetworkMode other than NetworkNone.
	EnableNetworking bool
}

// Network says what sandboxes with a network of named hosts may reach.
type Network struct {
	// Allow includes all hosts that a client may ask for, as hostlist.Parse returns them.
	Allow []string
	// Limits are those that every such network has, as hostlist.ParseLimits returns them. No client
	// can raise them.
	Limits string
	// Publish lets clients show ports of their sandboxes at this host's loopback.
	Publish bool
}

// Mounts says what clients may show their sandboxes of this host.
type Mounts struct {
	Roots []MountRoot
}

// NetworkMode is the network of a container.
type NetworkMode string

// The network modes.
const (
	NetworkNone   NetworkMode = "none"
	NetworkBridge NetworkMode = "bridge"
	NetworkHost   NetworkMode = "host"
)

// Sync says when the server copies a sandbox's changes to its uploaded codebase.
type Sync string

// The times of a synchronization.
const (
	SyncOnExec Sync = "on_exec" // when an exec of any kind completes
	SyncOnStop Sync = "on_stop" // when the sandbox stops
	SyncManual Sync = "manual"  // only on request
)

// OnConflict says what a synchronization does with a file that has changed in the codebase.
type OnConflict string

// The answers to a conflict.
const (
	ConflictOverwrite OnConflict = "overwrite" // the sandbox's version wins
	ConflictRefuse    OnConflict = "refuse"    // the codebase and the sandbox keep their versions
)

// Sandbox has the settings of the life of sandboxes.
type Sandbox struct {
	DefaultExpiration  time.Duration // default; 0: never
	MaxPerUser         int           // sandboxes of one owner; 0: any number
	CleanupInterval    time.Duration // between two removals of leftovers
	Sync               Sync
	OnConflict         OnConflict
	SessionIdleTimeout time.Duration // 0: never
	WiderForks         bool          // a fork may permit more than its sandbox, if asked for
}

// ServerLimits has the limits of calls and uploads.
type ServerLimits struct {
	MaxPageSize      int   // entries of one page of a listing
	MaxMessageBytes  int64 // of one request, or message of a stream
	MaxFileBytes     int64 // of one uploaded file; 0: any
	MaxCodebaseBytes int64 // of an uploaded codebase; 0: any
	MaxCodebaseFiles int   // of an uploaded codebase; 0: any

	// Of one owner; 0: any. Bytes and files include running uploads.
	MaxCodebasesPerOwner     int
	MaxCodebaseBytesPerOwner int64
	MaxCodebaseFilesPerOwner int

	Connections        int           // of all clients; 0: what the limit of open files allows
	ConnectionsPerPeer int           // of one address, or user of this host
	CallsPerOwner      int           // at once; 0: what the limit of open files allows
	ExecsPerOwner      int           // commands at once, detached ones too; 0: as CallsPerOwner
	FirstCallTimeout   time.Duration // until a connection shows credentials
}

// Audit bounds the audit logs.
type Audit struct {
	MaxBytesPerSandbox int64         // of one sandbox's log; 0: any
	MaxBytesPerOwner   int64         // of the logs of one owner's sandboxes, removed ones included; 0: any
	Retention          time.Duration // of the log of a removed sandbox; 0: for ever
}

// History bounds what is kept of applied changes, so that they can be undone.
type History struct {
	MaxBytesPerSource int64         // of the earlier contents of one source's files; 0: any
	Retention         time.Duration // of an apply or an undo; 0: for ever
}

// AuditExport says where the records of the audit logs are sent.
type AuditExport struct {
	OTLPURL        string // of an OpenTelemetry collector; "": none
	OTLPHeaderFile string // of header fields that go with each request, as export.ParseHeader reads it
	OTLPCAFile     string // PEM certificates of the authorities to trust in place of the system's
	AlertWebhook   string // URL; "": none
	AlertWhen      []export.Threshold
}

// AuditExportKeys are the keys of AuditExport.
var AuditExportKeys = []string{"audit.otlp_url", "audit.otlp_header_file", "audit.otlp_ca_file", "audit.alert_webhook", "audit.alert_when"}

// LogFormat is the form of the server's log.
type LogFormat string

// The forms of the log.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Logging says what the server logs.
type Logging struct {
	Level  slog.Level
	Format LogFormat
}

// Default returns the configuration without a file or variables.
func Default() *Config {
	return &Config{
		Server: Server{GRPCAddr: "127.0.0.1:9000", HTTPAddr: "127.0.0.1:8080"},
		Runtime: Runtime{
			Type: Bwrap, BwrapPath: "bwrap", DefaultTimeout: 30 * time.Second,
			Docker: DockerRuntime{DefaultImage: "debian:stable-slim", NetworkMode: NetworkNone},
		},
		Sandbox: Sandbox{MaxPerUser: 1000, CleanupInterval: 5 * time.Minute, Sync: SyncOnExec, OnConflict: ConflictOverwrite},
		Limits: ServerLimits{
			MaxPageSize: 1000, MaxMessageBytes: 16 << 20,
			MaxCodebasesPerOwner: 1000, MaxCodebaseBytesPerOwner: 100 << 30, MaxCodebaseFilesPerOwner: 2_000_000,
			ConnectionsPerPeer: 1024, FirstCallTimeout: 10 * time.Second,
		},
		Audit:   Audit{MaxBytesPerSandbox: 16 << 20, MaxBytesPerOwner: 256 << 20, Retention: 30 * 24 * time.Hour},
		Export:  AuditExport{AlertWhen: export.DefaultThresholds()},
		History: History{MaxBytesPerSource: 1 << 30, Retention: 30 * 24 * time.Hour},
		Logging: Logging{Level: slog.LevelInfo, Format: LogText},
	}
}

// UnderHome sets the paths that are not configured, below the state directory dir.
func (c *Config) UnderHome(dir string) {
	for _, p := range []struct {
		path *string
		name string
	}{
		{&c.Auth.TokenFile, "token"},
		{&c.Storage.CodebasePath, "codebases"},
		{&c.Storage.DBPath, "server.db"},
	} {
		if *p.path == "" {
			*p.path = filepath.Join(dir, p.name)
		}
	}
}

// Package config is the server's configuration: its keys, their defaults, the
// YAML file and the environment they are read from, and what may not be
// combined. It reads the file it is given and nothing else; it does not look
// whether an address can be listened on or a program is there.
//
// A key is written SECTION.NAME. In the file sections are mappings; in the
// environment the variable is AGENTFENSE_SECTION_NAME. The environment goes
// before the file, the file before the defaults. Whatever is not understood is
// an error that says where it stands, never ignored.
package config

import (
	"log/slog"
	"path/filepath"
	"time"
)

// Config is everything that can be configured. A path that is "" lies in the
// state directory, see UnderHome.
type Config struct {
	Server  Server
	Auth    Auth
	Storage Storage
	Runtime Runtime
	Sandbox Sandbox
	Limits  ServerLimits
	Audit   Audit
	Logging Logging
}

// Server says where the server listens.
type Server struct {
	GRPCAddr string // host:port or unix:///path
	HTTPAddr string // host:port; "" means no REST
	TLS      TLS
}

// TLS names the PEM files of both listeners. All are "" or Cert and Key are
// given.
type TLS struct {
	Cert, Key string
	// ClientCA signs the certificates that clients must then show.
	ClientCA string
}

// Enabled reports whether the listeners speak TLS.
func (t TLS) Enabled() bool { return t.Cert != "" }

// Auth says who may call.
type Auth struct {
	TokenFile string // of the default token
}

// Storage says where the server keeps what only it knows.
type Storage struct {
	CodebasePath string // directory of the uploaded codebases
	MountPath    string // of no effect: a view is mounted in its sandbox's directory
	DBPath       string // SQLite database
}

// RuntimeType is what confines a sandbox's processes.
type RuntimeType string

// The runtimes.
const (
	Bwrap  RuntimeType = "bwrap"
	Docker RuntimeType = "docker"
)

// Runtime says how commands are run.
type Runtime struct {
	Type           RuntimeType   // of a sandbox that does not ask for one
	Allowed        []RuntimeType // that a sandbox may ask for; empty: Type alone
	BwrapPath      string        // program, looked for on the PATH without a /
	DefaultTimeout time.Duration // of an exec that asks for none; 0: none
	MaxTimeout     time.Duration // an exec may ask for; 0: any
	Docker         DockerRuntime
}

// DockerRuntime is how containers are made.
type DockerRuntime struct {
	Host         string // of the daemon, such as unix:///run/docker.sock; "": the client's default
	DefaultImage string
	Images       []string // that a sandbox may ask for beside DefaultImage; see Allows
	NetworkMode  NetworkMode
	// EnableNetworking allows a NetworkMode other than NetworkNone.
	EnableNetworking bool
}

// NetworkMode is the network of a container.
type NetworkMode string

// The network modes.
const (
	NetworkNone   NetworkMode = "none"
	NetworkBridge NetworkMode = "bridge"
	NetworkHost   NetworkMode = "host"
)

// Sync says when a sandbox's changes reach its uploaded codebase.
type Sync string

// The moments of a synchronization.
const (
	SyncOnExec Sync = "on_exec" // when an exec of any kind completes
	SyncOnStop Sync = "on_stop" // when the sandbox stops
	SyncManual Sync = "manual"  // only when asked
)

// OnConflict says what a synchronization does with a file that the codebase
// has changed meanwhile.
type OnConflict string

// The answers to a conflict.
const (
	ConflictOverwrite OnConflict = "overwrite" // the sandbox's version wins
	ConflictRefuse    OnConflict = "refuse"    // the codebase's stays, the sandbox keeps its own
)

// Sandbox says how sandboxes live.
type Sandbox struct {
	DefaultExpiration  time.Duration // of a sandbox that asks for none; 0: never
	MaxPerUser         int           // sandboxes of one owner; 0: any number
	CleanupInterval    time.Duration // between two removals of leftovers
	Sync               Sync
	OnConflict         OnConflict
	SessionIdleTimeout time.Duration // 0: never
}

// ServerLimits bounds what one call may ask for.
type ServerLimits struct {
	MaxPageSize      int   // entries of one page of a listing
	MaxMessageBytes  int64 // of one request, or message of a stream
	MaxFileBytes     int64 // of one uploaded file; 0: any
	MaxCodebaseBytes int64 // of an uploaded codebase; 0: any
	MaxCodebaseFiles int   // of an uploaded codebase; 0: any

	// Of one owner; 0: any. Bytes and files count those on their way, too.
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

// Default is the configuration without a file and a variable.
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
		Logging: Logging{Level: slog.LevelInfo, Format: LogText},
	}
}

// UnderHome gives the paths that are not configured their place in the state
// directory dir.
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

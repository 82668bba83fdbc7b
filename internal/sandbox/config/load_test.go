package config_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/audit/export"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
)

const example = "../../../deploy/agentfense.yaml"

// write makes a configuration file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "af.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheExampleIsTheDefault(t *testing.T) {
	got, err := config.Load(example, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), got); diff != "" {
		t.Errorf("deploy/agentfense.yaml (-default +file):\n%s", diff)
	}
}

// Every key stands in the example, in its section, and in the operator's page.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	inExample := map[string]bool{}
	var sections []string
	for line := range strings.Lines(string(text)) {
		line = strings.Replace(line, "# sync_on_completion:", "sync_on_completion:", 1)
		name, _, isKey := strings.Cut(strings.TrimLeft(line, " "), ":")
		if !isKey || strings.HasPrefix(name, "#") {
			continue
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		sections = append(sections[:depth], name)
		inExample[strings.Join(sections, ".")] = true
	}
	for _, key := range config.Keys() {
		if !inExample[key] {
			t.Errorf("deploy/agentfense.yaml does not name %s", key)
		}
		if !strings.Contains(string(page), "\n| `"+key+"` |") {
			t.Errorf("docs/server.md has no row for %s", key)
		}
	}
}

func TestLoadReadsEveryKey(t *testing.T) {
	path := write(t, `
server:
  grpc_addr: "0.0.0.0:9443"
  http_addr: ""
  tls: {cert: tls/cert.pem, key: /etc/af/key.pem, client_ca: ca.pem}
auth: {token_file: /run/af/token}
storage:
  codebase_path: cb
  mount_path: /mnt/af
  db_path: ../af.db
runtime:
  type: docker
  allowed: [docker, bwrap]
  bwrap_path: /opt/bwrap
  default_timeout: 1m
  max_timeout: 10m
  docker:
    host: unix:///run/d.sock
    default_image: busybox:1
    images: ["python:*", ghcr.io/me/box:1]
    network_mode: bridge
    enable_networking: true
mounts:
  roots:
    - {path: /srv/data}
    - {path: shared, writable: true, owners: [alice, bob]}
secrets:
  - {name: API_KEY, hosts: [api.example.com, "b.example.com:8443"]}
  - {name: GH_TOKEN, source: "file:keys/gh", hosts: [api.github.com], requests: ["GET /repos/**"], owners: [alice]}
  - {name: GH_TOKEN, source: "cmd:pass show a@b", hosts: [api.github.com], owners: [bob]}
network: {limits: [out=1G, connections=100]}
sandbox:
  default_expiration: 24h
  max_per_user: 7
  cleanup_interval: 1m30s
  sync: on_stop
  on_conflict: refuse
  session_idle_timeout: 1h
  wider_forks: true
limits:
  max_page_size: 10
  max_message_size: 4M
  max_file_size: 1G
  max_codebase_size: 2G
  max_codebase_files: 50000
  max_codebases_per_owner: 9
  max_codebase_size_per_owner: 3G
  max_codebase_files_per_owner: 60000
  connections: 400
  connections_per_peer: 40
  calls_per_owner: 50
  execs_per_owner: 20
  first_call_timeout: 3s
audit:
  max_bytes_per_sandbox: 1M
  max_bytes_per_owner: 0
  retention: 48h
  otlp_url: https://collector.example.com/v1/logs
  otlp_header_file: otlp.header
  otlp_ca_file: /etc/af/otlp.pem
  alert_webhook: https://chat.example.com/hook/s3cret
  alert_when: [applied=2/1h]
history:
  max_bytes_per_source: 2G
  retention: 24h
logging:
  level: debug
  format: json
`)
	got, err := config.Load(path, []string{"HOME=/x", "AGENTFENSE_HOME=/y"})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	want := &config.Config{
		Server: config.Server{GRPCAddr: "0.0.0.0:9443", TLS: config.TLS{
			Cert: dir + "/tls/cert.pem", Key: "/etc/af/key.pem", ClientCA: dir + "/ca.pem",
		}},
		Auth:    config.Auth{TokenFile: "/run/af/token"},
		Storage: config.Storage{CodebasePath: dir + "/cb", MountPath: "/mnt/af", DBPath: filepath.Join(dir, "../af.db")},
		Runtime: config.Runtime{
			Type: config.Docker, Allowed: []config.RuntimeType{config.Docker, config.Bwrap}, BwrapPath: "/opt/bwrap", DefaultTimeout: time.Minute, MaxTimeout: 10 * time.Minute,
			Docker: config.DockerRuntime{
				Host: "unix:///run/d.sock", DefaultImage: "busybox:1", Images: []string{"python:*", "ghcr.io/me/box:1"},
				NetworkMode: config.NetworkBridge, EnableNetworking: true,
			},
		},
		Mounts: config.Mounts{Roots: []config.MountRoot{{Path: "/srv/data"}, {Path: dir + "/shared", Writable: true, Owners: []string{"alice", "bob"}}}},
		Secrets: []config.Secret{
			{Name: "API_KEY", Stored: hostlist.Secret{Text: "API_KEY=env:API_KEY@api.example.com:443,b.example.com:8443"}},
			{Name: "GH_TOKEN", Stored: hostlist.Secret{Text: "GH_TOKEN=file:" + dir + "/keys/gh@api.github.com:443", Allow: []string{"GET /repos/**"}}, Owners: []string{"alice"}},
			{Name: "GH_TOKEN", Stored: hostlist.Secret{Text: "GH_TOKEN=cmd:pass show a@b@api.github.com:443"}, Owners: []string{"bob"}},
		},
		Network: config.Network{Limits: "connections=100,out=1G"},
		Sandbox: config.Sandbox{
			DefaultExpiration: 24 * time.Hour, MaxPerUser: 7, CleanupInterval: 90 * time.Second,
			Sync: config.SyncOnStop, OnConflict: config.ConflictRefuse, SessionIdleTimeout: time.Hour, WiderForks: true,
		},
		Limits: config.ServerLimits{
			MaxPageSize: 10, MaxMessageBytes: 4 << 20, MaxFileBytes: 1 << 30,
			MaxCodebaseBytes: 2 << 30, MaxCodebaseFiles: 50000,
			MaxCodebasesPerOwner: 9, MaxCodebaseBytesPerOwner: 3 << 30, MaxCodebaseFilesPerOwner: 60000,
			Connections: 400, ConnectionsPerPeer: 40, CallsPerOwner: 50, ExecsPerOwner: 20, FirstCallTimeout: 3 * time.Second,
		},
		Audit: config.Audit{MaxBytesPerSandbox: 1 << 20, Retention: 48 * time.Hour},
		Export: config.AuditExport{
			OTLPURL: "https://collector.example.com/v1/logs", OTLPHeaderFile: dir + "/otlp.header", OTLPCAFile: "/etc/af/otlp.pem",
			AlertWebhook: "https://chat.example.com/hook/s3cret",
			AlertWhen:    []export.Threshold{{Event: audit.KindApplied, Count: 2, Window: time.Hour}},
		},
		History: config.History{MaxBytesPerSource: 2 << 30, Retention: 24 * time.Hour},
		Logging: config.Logging{Level: slog.LevelDebug, Format: config.LogJSON},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

func TestLoadRefuses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a mistyped key", "server:\n  grcp_addr: x", `2: unknown key "server.grcp_addr": did you mean "server.grpc_addr"?`},
		{"a mistyped section", "sever: {}", `1: unknown key "sever": did you mean "server"?`},
		{"a key in the wrong section", "runtime:\n  network_mode: none", `2: unknown key "runtime.network_mode": did you mean "runtime.docker.network_mode"?`},
		{"a key that is like none", "logging:\n  colours: 1", `2: unknown key "logging.colours": in logging it is one of level, format`},
		{"a key given twice", "logging:\n  level: info\n  level: debug", `3: logging.level is given twice`},
		{"a list for a section", "server: [a]", `1: server is a mapping of keys, not a list`},
		{"a list for a file", "- a", `1: a configuration is a mapping of keys, not a list`},
		{"a mapping for a value", "server:\n  grpc_addr: {a: b}", `2: server.grpc_addr is text, not a mapping: quote a value that begins with * { or [`},
		{"no value", "server:\n  http_addr:", `2: server.http_addr has no value`},
		{"an alias", "logging: &a {level: info}\nserver: *a", `1: logging is a mapping of keys, not a mapping`},
		{"broken YAML", "server:\n\tx: 1", `2: not YAML: the line is indented with a tab: YAML takes spaces only`},
		{"two documents", "logging: {}\n---\nlogging: {}", `2: a second document begins: the file holds one`},
		{"a number for a duration", "runtime: {max_timeout: 30}", `1: runtime.max_timeout: "30": want a duration such as 30s, 10m or 24h, or 0`},
		{"a negative duration", "sandbox: {default_expiration: -1s}", `1: sandbox.default_expiration: "-1s": want a duration such as 30s, 10m or 24h, or 0`},
		{"no interval", "sandbox: {cleanup_interval: 0}", `1: sandbox.cleanup_interval: "0": want a duration of 1s or more, such as 5m`},
		{"a word for a number", "sandbox: {max_per_user: many}", `1: sandbox.max_per_user: "many": want a whole number, 0 or more`},
		{"a page of nothing", "limits: {max_page_size: 0}", `1: limits.max_page_size: "0": want a whole number, 1 or more`},
		{"a word for a size", "limits: {max_file_size: big}", `1: limits.max_file_size: "big": want a size with K, M, G or T, such as 512M, or 0`},
		{"messages smaller than a piece of an upload", "limits: {max_message_size: 1K}", `1: limits.max_message_size: "1K": want a size between 128K and 2047M, such as 16M`},
		{"a collector on another host without TLS", "audit: {otlp_url: 'http://collector.example.com/s3cret'}", `1: audit.otlp_url: http://collector.example.com would send the records unprotected to another host: use https`},
		{"headers without a collector", "audit: {otlp_header_file: h}", `1: audit.otlp_header_file: audit.otlp_url is missing`},
		{"thresholds without a webhook", "audit: {alert_when: [applied=1/1m]}", `1: audit.alert_when: audit.alert_webhook is missing`},
		{"an unknown event of a threshold", "audit: {alert_when: [aply=1/1m]}", `1: audit.alert_when: "aply=1/1m": unknown event "aply" (docs/audit.md lists them)`},
		{"yes for true", "sandbox: {sync_on_completion: yes}", `1: sandbox.sync_on_completion: "yes": want true or false`},
		{"a mistyped word", "sandbox: {sync: onexec}", `1: sandbox.sync: "onexec": did you mean "on_exec"?`},
		{"an unknown word", "logging: {level: quiet}", `1: logging.level: "quiet": want one of debug, info, warn, error`},
		{"the mock runtime", "runtime:\n  type: mock", `2: runtime.type: "mock" would run commands without any isolation: use bwrap or docker`},
		{"a socket with a relative path", "server: {grpc_addr: 'unix://af.sock'}", `1: server.grpc_addr: "unix://af.sock": want a socket's absolute path, such as unix:///run/agentfense.sock`},
		{"a socket for REST", "server: {http_addr: 'unix:///run/af.sock'}", `1: server.http_addr: "unix:///run/af.sock": want a port number between 0 and 65535`},
		{"TLS over a socket", "server: {grpc_addr: 'unix:///run/af.sock', tls: {cert: a, key: b}}", `1: server.grpc_addr: unix:///run/af.sock is a unix socket, which does not use TLS: remove server.tls`},
		{"no port", "server: {grpc_addr: localhost}", `1: server.grpc_addr: "localhost": want host:port, such as 127.0.0.1:9000`},
		{"a named port", "server: {grpc_addr: 'localhost:grpc'}", `1: server.grpc_addr: "localhost:grpc": want a port number between 0 and 65535`},
		{"no gRPC at all", `server: {grpc_addr: ""}`, `1: server.grpc_addr: "": want host:port, such as 127.0.0.1:9000`},
		{"every interface without TLS", "server:\n  grpc_addr: :9000", `2: server.grpc_addr: :9000 can be reached from other hosts: give server.tls.cert and server.tls.key, or listen on 127.0.0.1`},
		{"another host's name without TLS", "server:\n  http_addr: example.org:80", `2: server.http_addr: example.org:80 can be reached from other hosts: give server.tls.cert and server.tls.key, or listen on 127.0.0.1`},
		{"a certificate without its key", "server:\n  tls: {cert: /c}", `2: server.tls.cert: server.tls.key is missing`},
		{"a key without its certificate", "server:\n  tls: {key: /c}", `2: server.tls.key: server.tls.cert is missing`},
		{"a client CA without TLS", "server:\n  tls: {client_ca: /c}", `2: server.tls.client_ca: server.tls.cert and server.tls.key are missing`},
		{"a default beyond the most", "runtime:\n  max_timeout: 10s", `2: runtime.max_timeout: runtime.default_timeout 30s exceeds runtime.max_timeout 10s`},
		{"no time-out by default, but a most", "runtime:\n  default_timeout: 0\n  max_timeout: 10s", `2: runtime.default_timeout: runtime.default_timeout 0 means no time-out, which exceeds runtime.max_timeout 10s`},
		{"a network that is not enabled", "runtime:\n  docker:\n    network_mode: host", `3: runtime.docker.network_mode: host needs runtime.docker.enable_networking: true`},
		{"a limit that is given twice", "network: {limits: [out=1M, out=2M]}", `1: network.limits: "out=2M": the limit out is given twice`},
		{"limits that are no list", "network: {limits: out=1M}", `1: network.limits: "out=1M": want a list, such as [a, b]`},
		{"an unknown network", "runtime: {docker: {network_mode: hots}}", `1: runtime.docker.network_mode: "hots": did you mean "host"?`},
		{"a docker host that is a path", "runtime: {docker: {host: /run/docker.sock}}", `1: runtime.docker.host: "/run/docker.sock": want an address such as unix:///run/docker.sock or tcp://host:2376`},
		{"an empty image", `runtime: {docker: {default_image: ""}}`, `1: runtime.docker.default_image: "": want a name without spaces`},
		{"two names of sync that disagree", "sandbox:\n  sync: on_stop\n  sync_on_completion: true", `3: sandbox.sync_on_completion: conflicts with sandbox.sync: set only one of the two`},
		{"the same, the other way round", "sandbox:\n  sync_on_completion: false\n  sync: on_exec", `3: sandbox.sync: conflicts with sandbox.sync_on_completion: set only one of the two`},
		{"roots that are texts", "mounts: {roots: [/srv]}", `1: mounts.roots has mappings of keep, owners, path, writable, not a single value`},
		{"a root that is no list", "mounts: {roots: /srv}", `1: mounts.roots is a list of mappings, not a single value`},
		{"a root without a path", "mounts: {roots: [{writable: true}]}", `1: mounts.roots: entry 1: path is missing`},
		{"a mistyped key of a root", "mounts:\n  roots:\n    - path: /srv\n      writeable: true", `4: mounts.roots: unknown key "writeable": did you mean "writable"?`},
		{"a key of a root twice", "mounts:\n  roots:\n    - path: /srv\n      path: /", `4: mounts.roots.path is given twice`},
		{"the whole host", "mounts: {roots: [{path: /}]}", `1: mounts.roots: entry 1: "/" is the whole host; name the directories that are needed`},
		{"the kernel's files", "mounts: {roots: [{path: /proc/1}]}", `1: mounts.roots: entry 1: "/proc/1" holds the host's kernel interfaces and sockets`},
		{"a root twice", "mounts: {roots: [{path: /srv}, {path: /srv/}]}", `1: mounts.roots: entry 2: "/srv" is listed twice`},
		{"a word for writable", "mounts: {roots: [{path: /srv, writable: yes}]}", `1: mounts.roots: entry 1: writable: "yes": want true or false`},
		{"a root of no owner", "mounts: {roots: [{path: /srv, owners: []}]}", `1: mounts.roots: entry 1: owners: name at least one owner, or leave it out for any owner`},
		{"an owner that is no list", "mounts: {roots: [{path: /srv, owners: alice}]}", `1: mounts.roots.owners is a list, such as [a, b], not a single value`},
		{"a root that hides nothing", "mounts: {roots: [{path: /srv}, {path: /srv/a, owners: [alice]}]}", `1: mounts.roots: "/srv/a" is in "/srv", which more owners may have, or write, or which has keep: who mounts the outer directory sees the inner one`},
		{"a root that protects nothing", "mounts: {roots: [{path: /srv/a}, {path: /srv, writable: true}]}", `1: mounts.roots: "/srv/a" is in "/srv", which more owners may have, or write, or which has keep: who mounts the outer directory sees the inner one`},
		{"a secret without hosts", "secrets: [{name: A}]", `1: secrets: entry 1: secret A: hosts is missing`},
		{"a secret without a name", "secrets: [{hosts: [a.example.com]}]", `1: secrets: entry 1: name "": want the name of a variable, such as API_KEY`},
		{"a malformed name", "secrets: [{name: A-B, hosts: [a.example.com]}]", `1: secrets: entry 1: secret A-B: "A-B=env:A-B@a.example.com": want the name of a variable: letters, digits and single _, and a letter first and no _ last`},
		{"a secret for a wildcard", "secrets: [{name: A, hosts: ['*.example.com']}]", `1: secrets: entry 1: secret A: "A=env:A@*.example.com": name each host; a secret is for no wildcard`},
		{"hosts in one text", "secrets: [{name: A, hosts: ['a.example.com,b.example.com']}]", `1: secrets: entry 1: secret A: hosts: want HOST or HOST:PORT`},
		{"a host that changes the source", "secrets: [{name: A, hosts: ['x@a.example.com']}]", `1: secrets: entry 1: secret A: hosts: want HOST or HOST:PORT`},
		{"an unknown source", "secrets: [{name: A, source: 'vault:x', hosts: [a.example.com]}]", `1: secrets: entry 1: secret A: source: want env:VARIABLE, file:PATH or cmd:COMMAND`},
		{"a malformed request", "secrets: [{name: A, hosts: [a.example.com], requests: [get]}]", `1: secrets: entry 1: secret A: requests: "A=get": want NAME=METHOD[,METHOD…] PATH, such as 'API_KEY=POST /v1/messages'`},
		{"a secret twice for an owner", "secrets: [{name: A, hosts: [a.example.com]}, {name: A, hosts: [b.example.com], owners: [alice]}]", `1: secrets: entry 2: secret A is listed twice for one owner`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := write(t, tt.text)
			got, err := config.Load(path, nil)
			if !errdefs.Is(err, errdefs.Invalid) {
				t.Fatalf("Load = %+v, %v, want Invalid", got, err)
			}
			if got, want := err.Error(), path+":"+tt.want; got != want {
				t.Errorf("Load:\n got %s\nwant %s", got, want)
			}
		})
	}
}

func TestLoadTakes(t *testing.T) {
	tests := []struct {
		name, text string
		check      func(*config.Config) bool
	}{
		{"an empty file", "", func(c *config.Config) bool { return cmp.Equal(c, config.Default()) }},
		{"a section of comments", "server:\n  # grpc_addr: x\n", func(c *config.Config) bool { return cmp.Equal(c, config.Default()) }},
		{"sync_on_completion true", "sandbox: {sync_on_completion: true}", func(c *config.Config) bool { return c.Sandbox.Sync == config.SyncOnExec }},
		{"sync_on_completion false", "sandbox: {sync_on_completion: false}", func(c *config.Config) bool { return c.Sandbox.Sync == config.SyncManual }},
		{"two names of sync that agree", "sandbox: {sync: manual, sync_on_completion: false}", func(c *config.Config) bool { return c.Sandbox.Sync == config.SyncManual }},
		{"a quoted number", `sandbox: {max_per_user: "3"}`, func(c *config.Config) bool { return c.Sandbox.MaxPerUser == 3 }},
		{"IPv6 loopback", `server: {grpc_addr: "[::1]:9000"}`, func(c *config.Config) bool { return c.Server.GRPCAddr == "[::1]:9000" }},
		{"a program by its relative path", "runtime: {bwrap_path: ./bwrap}", func(c *config.Config) bool { return filepath.IsAbs(c.Runtime.BwrapPath) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := config.Load(write(t, tt.text), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.check(c) {
				t.Errorf("Load = %+v", c)
			}
		})
	}
}

func TestAFileThatCannotBeRead(t *testing.T) {
	if _, err := config.Load(filepath.Join(t.TempDir(), "no.yaml"), nil); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("an absent file: %v, want NotFound", err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{"a directory": t.TempDir(), "a FIFO": fifo, "a device": "/dev/zero"} {
		if _, err := config.Load(path, nil); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v, want Invalid", what, err)
		}
	}
	if _, err := config.Load(write(t, strings.Repeat("#", 2<<20)), nil); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a file of 2 MiB: %v, want Invalid", err)
	}
}

func TestEnvironment(t *testing.T) {
	path := write(t, "logging: {level: debug}\nserver: {grpc_addr: 'localhost:1'}\nsandbox: {sync: on_stop}")
	c, err := config.Load(path, []string{
		"AGENTFENSE_SERVER_GRPC_ADDR=127.0.0.1:2", "AGENTFENSE_SERVER_HTTP_ADDR=", "AGENTFENSE_RUNTIME_DOCKER_DEFAULT_IMAGE=a:b",
		"AGENTFENSE_SANDBOX_SYNC_ON_COMPLETION=false", "AGENTFENSE_SANDBOX=outer", "AGENTFENSE_TOKEN=x", "AGENTFENSE_STORAGE_DB_PATH=/db",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Server = config.Server{GRPCAddr: "127.0.0.1:2"}
	want.Logging.Level = slog.LevelDebug
	want.Runtime.Docker.DefaultImage = "a:b"
	want.Sandbox.Sync = config.SyncManual
	want.Storage.DBPath = "/db"
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}

	for variable, want := range map[string]string{
		"AGENTFENSE_SERVER_GRCP_ADDR=x":          `environment: unknown variable AGENTFENSE_SERVER_GRCP_ADDR: did you mean AGENTFENSE_SERVER_GRPC_ADDR?`,
		"AGENTFENSE_AUTH_SOMETHING_ELSE_THERE=x": `environment: unknown variable AGENTFENSE_AUTH_SOMETHING_ELSE_THERE: no configuration key has this name`,
		"AGENTFENSE_RUNTIME_TYPE=mock":           `AGENTFENSE_RUNTIME_TYPE: "mock" would run commands without any isolation: use bwrap or docker`,
		"AGENTFENSE_SERVER_GRPC_ADDR=:1":         `AGENTFENSE_SERVER_GRPC_ADDR: :1 can be reached from other hosts: give server.tls.cert and server.tls.key, or listen on 127.0.0.1`,
		"AGENTFENSE_STORAGE_DB_PATH=db":          `AGENTFENSE_STORAGE_DB_PATH: "db": want an absolute path`,
		"AGENTFENSE_MOUNTS_ROOTS=/srv:data":      `AGENTFENSE_MOUNTS_ROOTS: entry 2: "data": want an absolute path`,
		"AGENTFENSE_SECRETS=A":                   `AGENTFENSE_SECRETS: a list of mappings: set it in a configuration file`,
		"AGENTFENSE_RUNTIME_MAX_TIMEOUT=":        `AGENTFENSE_RUNTIME_MAX_TIMEOUT: "": want a duration such as 30s, 10m or 24h, or 0`,
	} {
		if _, err := config.Load("", []string{variable}); !errdefs.Is(err, errdefs.Invalid) || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", variable, err, want)
		}
	}
}

func TestRootsAndSecretsOfOwners(t *testing.T) {
	c, err := config.Load(write(t, `
mounts: {roots: [{path: /srv/data}, {path: /srv/data/out, writable: true}, {path: /srv/alice, owners: [alice]}]}
secrets: [{name: A, hosts: [a.example.com], owners: [alice]}, {name: A, hosts: [b.example.com], owners: [bob]}, {name: B, hosts: [b.example.com]}]
`), []string{"AGENTFENSE_AUTH_TOKEN_FILE=/t"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, owner, want string }{
		{"/srv/data", "bob", "/srv/data"},
		{"/srv/data/out/x", "bob", "/srv/data/out"},
		{"/srv/data/outer", "bob", "/srv/data"},
		{"/srv/alice/x", "alice", "/srv/alice"},
		{"/srv/alice/x", "bob", ""},
		{"/srv", "alice", ""},
		{"/srv/database", "alice", ""},
	} {
		root, ok := c.RootOf(tt.path, tt.owner)
		if ok != (tt.want != "") || ok && root.Path != tt.want {
			t.Errorf("RootOf(%s, %s) = %v, %t, want %q", tt.path, tt.owner, root, ok, tt.want)
		}
	}
	for _, tt := range []struct{ name, owner, want string }{
		{"A", "alice", "A=env:A@a.example.com:443"},
		{"A", "bob", "A=env:A@b.example.com:443"},
		{"A", "carol", ""},
		{"B", "carol", "B=env:B@b.example.com:443"},
		{"C", "alice", ""},
	} {
		s, ok := c.SecretOf(tt.name, tt.owner)
		if ok != (tt.want != "") || s.Stored.Text != tt.want {
			t.Errorf("SecretOf(%s, %s) = %v, %t, want %q", tt.name, tt.owner, s, ok, tt.want)
		}
	}
	c, err = config.Load("", []string{"AGENTFENSE_MOUNTS_ROOTS=/srv/a:/srv/b"})
	if err != nil || len(c.Mounts.Roots) != 2 || c.Mounts.Roots[1].Path != "/srv/b" || c.Mounts.Roots[1].Writable {
		t.Errorf("roots of the environment: %v, %v", c, err)
	}
}

// Each key has a variable of its own, which is no other variable of ours.
func TestVariables(t *testing.T) {
	seen := map[string]bool{"AGENTFENSE_HOME": true, "AGENTFENSE_ENDPOINT": true, "AGENTFENSE_TOKEN": true, "AGENTFENSE_TOKEN_FILE": true, "AGENTFENSE_TLS_CA": true, "AGENTFENSE_TLS_CERT": true, "AGENTFENSE_TLS_KEY": true, "AGENTFENSE_SANDBOX": true, "AGENTFENSE_REQUIRE": true}
	for _, key := range config.Keys() {
		if seen[config.Variable(key)] {
			t.Errorf("%s: variable %s is taken", key, config.Variable(key))
		}
		seen[config.Variable(key)] = true
	}
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true, "unix:///run/af.sock": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example.org:1": false, "127.0.0.1": false, "127.1:1": false,
	} {
		if got := config.IsLoopback(addr); got != want {
			t.Errorf("IsLoopback(%q) = %t, want %t", addr, got, want)
		}
	}
}

func TestPathsLieInTheStateDirectory(t *testing.T) {
	c := config.Default()
	c.Storage.DBPath = "/other/db"
	c.UnderHome("/home/af")
	want := config.Storage{CodebasePath: "/home/af/codebases", DBPath: "/other/db"}
	if c.Storage != want || c.Auth.TokenFile != "/home/af/token" {
		t.Errorf("UnderHome: %+v, token %s", c.Storage, c.Auth.TokenFile)
	}
}

func FuzzLoad(f *testing.F) {
	text, err := os.ReadFile(example)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("server: {tls: {cert: a}}"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path, nil)
		if err != nil {
			if !errdefs.Is(err, errdefs.Invalid) || !strings.HasPrefix(err.Error(), path+":") {
				t.Errorf("Load: %v, want Invalid that begins with the file", err)
			}
			return
		}
		for _, addr := range []string{c.Server.GRPCAddr, c.Server.HTTPAddr} {
			if addr != "" && !c.Server.TLS.Enabled() && !config.IsLoopback(addr) {
				t.Errorf("%s without TLS was let through", addr)
			}
		}
	})
}

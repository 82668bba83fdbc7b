package config

import (
	"slices"
	"strings"
)

// setting is a key, with the function that sets its value.
type setting struct {
	key string
	set func(c *Config, v value) error
}

// settings are the keys, in the order of deploy/agentfense.yaml.
var settings = []setting{
	{"server.grpc_addr", func(c *Config, v value) error { return v.listenAddr(&c.Server.GRPCAddr) }},
	{"server.http_addr", func(c *Config, v value) error { return v.optional(&c.Server.HTTPAddr, value.addr) }},
	{"server.tls.cert", func(c *Config, v value) error { return v.optional(&c.Server.TLS.Cert, value.path) }},
	{"server.tls.key", func(c *Config, v value) error { return v.optional(&c.Server.TLS.Key, value.path) }},
	{"server.tls.client_ca", func(c *Config, v value) error { return v.optional(&c.Server.TLS.ClientCA, value.path) }},

	{"auth.token_file", func(c *Config, v value) error { return v.optional(&c.Auth.TokenFile, value.path) }},

	{"storage.codebase_path", func(c *Config, v value) error { return v.optional(&c.Storage.CodebasePath, value.path) }},
	{"storage.mount_path", func(c *Config, v value) error { return v.optional(&c.Storage.MountPath, value.path) }},
	{"storage.db_path", func(c *Config, v value) error { return v.optional(&c.Storage.DBPath, value.path) }},

	{"runtime.type", setRuntimeType},
	{"runtime.allowed", setAllowedRuntimes},
	{"runtime.bwrap_path", func(c *Config, v value) error { return v.program(&c.Runtime.BwrapPath) }},
	{"runtime.default_timeout", func(c *Config, v value) error { return v.duration(&c.Runtime.DefaultTimeout) }},
	{"runtime.max_timeout", func(c *Config, v value) error { return v.duration(&c.Runtime.MaxTimeout) }},
	{"runtime.docker.host", func(c *Config, v value) error { return v.optional(&c.Runtime.Docker.Host, value.dockerHost) }},
	{"runtime.docker.default_image", func(c *Config, v value) error { return v.word(&c.Runtime.Docker.DefaultImage) }},
	{"runtime.docker.images", setImages},
	{"runtime.docker.network_mode", func(c *Config, v value) error {
		return oneOf(v, &c.Runtime.Docker.NetworkMode, NetworkNone, NetworkBridge, NetworkHost)
	}},
	{"runtime.docker.enable_networking", func(c *Config, v value) error { return v.boolean(&c.Runtime.Docker.EnableNetworking) }},

	{"network.allow", setAllowedHosts},
	{"network.limits", setNetLimits},
	{"network.publish", func(c *Config, v value) error { return v.boolean(&c.Network.Publish) }},

	{keyRoots, setMountRoots},

	{keySecrets, setSecrets},

	{"sandbox.default_expiration", func(c *Config, v value) error { return v.duration(&c.Sandbox.DefaultExpiration) }},
	{"sandbox.max_per_user", func(c *Config, v value) error { return v.count(&c.Sandbox.MaxPerUser, 0) }},
	{"sandbox.cleanup_interval", func(c *Config, v value) error { return v.interval(&c.Sandbox.CleanupInterval) }},
	{"sandbox.sync", func(c *Config, v value) error {
		return oneOf(v, &c.Sandbox.Sync, SyncOnExec, SyncOnStop, SyncManual)
	}},
	{"sandbox.sync_on_completion", setSyncOnCompletion},
	{"sandbox.on_conflict", func(c *Config, v value) error {
		return oneOf(v, &c.Sandbox.OnConflict, ConflictOverwrite, ConflictRefuse)
	}},
	{"sandbox.session_idle_timeout", func(c *Config, v value) error { return v.duration(&c.Sandbox.SessionIdleTimeout) }},
	{"sandbox.wider_forks", func(c *Config, v value) error { return v.boolean(&c.Sandbox.WiderForks) }},

	{"limits.max_page_size", func(c *Config, v value) error { return v.count(&c.Limits.MaxPageSize, 1) }},
	{"limits.max_message_size", func(c *Config, v value) error { return v.messageBytes(&c.Limits.MaxMessageBytes) }},
	{"limits.max_file_size", func(c *Config, v value) error { return v.bytes(&c.Limits.MaxFileBytes) }},
	{"limits.max_codebase_size", func(c *Config, v value) error { return v.bytes(&c.Limits.MaxCodebaseBytes) }},
	{"limits.max_codebase_files", func(c *Config, v value) error { return v.count(&c.Limits.MaxCodebaseFiles, 0) }},

	{"limits.max_codebases_per_owner", func(c *Config, v value) error { return v.count(&c.Limits.MaxCodebasesPerOwner, 0) }},
	{"limits.max_codebase_size_per_owner", func(c *Config, v value) error { return v.bytes(&c.Limits.MaxCodebaseBytesPerOwner) }},
	{"limits.max_codebase_files_per_owner", func(c *Config, v value) error { return v.count(&c.Limits.MaxCodebaseFilesPerOwner, 0) }},

	{"limits.connections", func(c *Config, v value) error { return v.places(&c.Limits.Connections, true) }},
	{"limits.connections_per_peer", func(c *Config, v value) error { return v.places(&c.Limits.ConnectionsPerPeer, false) }},
	{"limits.calls_per_owner", func(c *Config, v value) error { return v.count(&c.Limits.CallsPerOwner, 0) }},
	{"limits.execs_per_owner", func(c *Config, v value) error { return v.count(&c.Limits.ExecsPerOwner, 0) }},
	{"limits.first_call_timeout", func(c *Config, v value) error { return v.interval(&c.Limits.FirstCallTimeout) }},

	{"audit.max_bytes_per_sandbox", func(c *Config, v value) error { return v.auditBytes(&c.Audit.MaxBytesPerSandbox) }},
	{"audit.max_bytes_per_owner", func(c *Config, v value) error { return v.auditBytes(&c.Audit.MaxBytesPerOwner) }},
	{"audit.retention", func(c *Config, v value) error { return v.duration(&c.Audit.Retention) }},

	{"audit.otlp_url", func(c *Config, v value) error { return v.optional(&c.Export.OTLPURL, value.receiver) }},
	{"audit.otlp_header_file", func(c *Config, v value) error { return v.optional(&c.Export.OTLPHeaderFile, value.path) }},
	{"audit.otlp_ca_file", func(c *Config, v value) error { return v.optional(&c.Export.OTLPCAFile, value.path) }},
	{"audit.alert_webhook", func(c *Config, v value) error { return v.optional(&c.Export.AlertWebhook, value.receiver) }},
	{"audit.alert_when", setAlertWhen},

	{"history.max_bytes_per_source", func(c *Config, v value) error { return v.bytes(&c.History.MaxBytesPerSource) }},
	{"history.retention", func(c *Config, v value) error { return v.duration(&c.History.Retention) }},

	{"logging.level", setLevel},
	{"logging.format", func(c *Config, v value) error { return oneOf(v, &c.Logging.Format, LogText, LogJSON) }},
}

// lists are the keys with a list in the file.
var lists = []string{"runtime.allowed", "runtime.docker.images", "network.allow", "network.limits", "audit.alert_when"}

// Keys returns every key, such as "server.grpc_addr".
func Keys() []string {
	keys := make([]string, len(settings))
	for i, s := range settings {
		keys[i] = s.key
	}
	return keys
}

// Variable returns the environment variable of a key.
func Variable(key string) string {
	return "AGENTFENSE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// find returns the setting of a whole key.
func find(key string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

// below returns the names in a section; "" is the whole file. It returns none if there is
// no such section.
func below(section string) []string {
	prefix := section
	if section != "" {
		prefix += "."
	}
	var names []string
	for _, s := range settings {
		if rest, ok := strings.CutPrefix(s.key, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

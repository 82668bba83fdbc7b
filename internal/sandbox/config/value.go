package config

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit/export"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
)

// value is what a key is given.
type value struct {
	text string
	// items are the values of a list in the file; isList tells that there was one.
	items  []string
	rows   []row // of a table
	isList bool
	dir    string // that a relative path starts from; "" where it may not be relative
}

func (v value) bad(want string) error {
	return errdefs.New(errdefs.Invalid, "%s: want %s", vpath.Quote(v.text), want)
}

// optional takes "" as it is, and anything else by set.
func (v value) optional(to *string, set func(value, *string) error) error {
	if v.text == "" {
		*to = ""
		return nil
	}
	return set(v, to)
}

func (v value) addr(to *string) error {
	host, port, err := net.SplitHostPort(v.text)
	if err != nil || !isWord(host, true) {
		return v.bad("host:port, such as 127.0.0.1:9000")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return v.bad("a port number between 0 and 65535")
	}
	*to = v.text
	return nil
}

// listenAddr is addr or a socket.
func (v value) listenAddr(to *string) error {
	path, isSocket := Socket(v.text)
	if !isSocket {
		return v.addr(to)
	}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return v.bad("a socket's absolute path, such as unix:///run/agentfense.sock")
	}
	*to = SocketAddr(filepath.Clean(path))
	return nil
}

func (v value) path(to *string) error {
	switch {
	case strings.ContainsRune(v.text, 0):
		return v.bad("a path")
	case filepath.IsAbs(v.text):
		*to = filepath.Clean(v.text)
	case v.dir == "":
		return v.bad("an absolute path")
	default:
		*to = filepath.Join(v.dir, v.text)
	}
	return nil
}

func (v value) program(to *string) error {
	switch {
	case !isWord(v.text, false):
		return v.bad("the name or the path of a program")
	case !strings.Contains(v.text, "/"):
		*to = v.text
		return nil
	}
	return v.path(to)
}

// receiver takes the URL of what audit records are sent to. Errors do not show it, because it may
// be a secret.
func (v value) receiver(to *string) error {
	if _, err := export.NewEndpoint(export.EndpointOptions{URL: v.text}, "/"); err != nil {
		return err
	}
	*to = v.text
	return nil
}

func (v value) word(to *string) error {
	if !isWord(v.text, false) {
		return v.bad("a name without spaces")
	}
	*to = v.text
	return nil
}

func (v value) dockerHost(to *string) error {
	scheme, rest, ok := strings.Cut(v.text, "://")
	if !ok || rest == "" || !isWord(v.text, false) || !slices.Contains([]string{"unix", "tcp", "http", "https"}, scheme) {
		return v.bad("an address such as unix:///run/docker.sock or tcp://host:2376")
	}
	*to = v.text
	return nil
}

// isWord reports whether text has neither spaces nor control characters.
func isWord(text string, emptyToo bool) bool {
	return (text != "" || emptyToo) && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

func (v value) duration(to *time.Duration) error {
	d, err := time.ParseDuration(v.text)
	if err != nil || d < 0 {
		return v.bad("a duration such as 30s, 10m or 24h, or 0")
	}
	*to = d
	return nil
}

func (v value) interval(to *time.Duration) error {
	d, err := time.ParseDuration(v.text)
	if err != nil || d < time.Second {
		return v.bad("a duration of 1s or more, such as 5m")
	}
	*to = d
	return nil
}

func (v value) boolean(to *bool) error {
	switch v.text {
	case "true", "false":
		*to = v.text == "true"
		return nil
	}
	return v.bad("true or false")
}

func (v value) count(to *int, least int) error {
	n, err := strconv.ParseInt(v.text, 10, 32)
	if err != nil || n < int64(least) {
		return v.bad(fmt.Sprintf("a whole number, %d or more", least))
	}
	*to = int(n)
	return nil
}

// places takes a number of connections, of which a quarter is for those without
// credentials.
func (v value) places(to *int, noneToo bool) error {
	if noneToo && v.text == "0" {
		*to = 0
		return nil
	}
	return v.count(to, 4)
}

func (v value) bytes(to *int64) error {
	if v.text == "0" {
		*to = 0
		return nil
	}
	n, err := ParseBytes(v.text)
	if err != nil {
		return v.bad("a size with K, M, G or T, such as 512M, or 0")
	}
	*to = n
	return nil
}

// auditBytes takes what a log needs at least.
func (v value) auditBytes(to *int64) error {
	var n int64
	if v.bytes(&n) != nil || n != 0 && n < 128<<10 {
		return v.bad("a size of 128K or more, such as 16M, or 0")
	}
	*to = n
	return nil
}

// messageBytes takes what both the piece of an upload and gRPC can live with.
func (v value) messageBytes(to *int64) error {
	n, err := ParseBytes(v.text)
	if err != nil || n < 128<<10 || n > math.MaxInt32 {
		return v.bad("a size between 128K and 2047M, such as 16M")
	}
	*to = n
	return nil
}

// oneOf takes one of some words.
func oneOf[T ~string](v value, to *T, words ...T) error {
	if i := slices.Index(words, T(v.text)); i >= 0 {
		*to = words[i]
		return nil
	}
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	if near := nearest.Word(v.text, names); near != "" {
		return errdefs.New(errdefs.Invalid, "%s: did you mean %q?", vpath.Quote(v.text), near)
	}
	return v.bad("one of " + strings.Join(names, ", "))
}

func setRuntimeType(c *Config, v value) error {
	if v.text == "mock" {
		return errdefs.New(errdefs.Invalid, `"mock" would run commands without any isolation: use bwrap or docker`)
	}
	return oneOf(v, &c.Runtime.Type, Bwrap, Docker)
}

// list takes several values: a list in the file, with commas between them in a
// variable. An empty one is nil.
func (v value) list() ([]string, error) {
	if v.isList {
		return v.items, nil
	}
	if v.dir != "" {
		return nil, v.bad("a list, such as [a, b]")
	}
	if v.text == "" {
		return nil, nil
	}
	return strings.Split(v.text, ","), nil
}

func setAllowedRuntimes(c *Config, v value) error {
	items, err := v.list()
	if err != nil {
		return err
	}
	c.Runtime.Allowed = nil
	for _, item := range items {
		var t Config
		if err := setRuntimeType(&t, value{text: item}); err != nil {
			return err
		}
		c.Runtime.Allowed = append(c.Runtime.Allowed, t.Runtime.Type)
	}
	return nil
}

func setImages(c *Config, v value) error {
	items, err := v.list()
	if err != nil {
		return err
	}
	for _, item := range items {
		if _, ok := parseImage(item); !ok {
			return value{text: item}.bad("an image such as python:3.13, a pattern such as python:*, or an image ID of 64 digits")
		}
	}
	c.Runtime.Docker.Images = items
	return nil
}

// setAllowedHosts takes a list. In the environment spaces separate hosts, which may have commas.
func setAllowedHosts(c *Config, v value) error {
	if !v.isList && v.dir == "" {
		v.items, v.isList = strings.Fields(v.text), true
	}
	items, err := v.list()
	if err != nil {
		return err
	}
	c.Network.Allow, err = hostlist.Parse(items)
	return err
}

func setNetLimits(c *Config, v value) error {
	items, err := v.list()
	if err == nil {
		c.Network.Limits, err = hostlist.ParseLimits(items...)
	}
	return err
}

func setAlertWhen(c *Config, v value) error {
	items, err := v.list()
	if err != nil {
		return err
	}
	c.Export.AlertWhen = nil
	for _, item := range items {
		t, err := export.ParseThreshold(item)
		if err != nil {
			return err
		}
		c.Export.AlertWhen = append(c.Export.AlertWhen, t)
	}
	if len(items) == 0 {
		return errdefs.New(errdefs.Invalid, "it is empty: leave it out for the default, and audit.alert_webhook for no alerts")
	}
	return nil
}

func setSyncOnCompletion(c *Config, v value) error {
	var on bool
	if err := v.boolean(&on); err != nil {
		return err
	}
	c.Sandbox.Sync = SyncManual
	if on {
		c.Sandbox.Sync = SyncOnExec
	}
	return nil
}

func setLevel(c *Config, v value) error {
	words := []string{"debug", "info", "warn", "error"}
	var word string
	if err := oneOf(v, &word, words...); err != nil {
		return err
	}
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	c.Logging.Level = levels[slices.Index(words, word)]
	return nil
}

// ParseBytes reads a size: a number and an optional suffix K, M, G or T
// (powers of 1024, also written KiB or KB). Errors: Invalid, also for 0.
func ParseBytes(s string) (int64, error) {
	digits := strings.TrimRight(s, "BbIiKkMmGgTt")
	unit := strings.ToUpper(s[len(digits):])
	scale, ok := map[string]float64{
		"": 1, "B": 1,
		"K": 1 << 10, "KB": 1 << 10, "KIB": 1 << 10,
		"M": 1 << 20, "MB": 1 << 20, "MIB": 1 << 20,
		"G": 1 << 30, "GB": 1 << 30, "GIB": 1 << 30,
		"T": 1 << 40, "TB": 1 << 40, "TIB": 1 << 40,
	}[unit]
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(n > 0) || n*scale > math.MaxInt64/2 {
		return 0, errdefs.New(errdefs.Invalid, "size %q: want a positive number with K, M, G or T, such as 512M", s)
	}
	return int64(n * scale), nil
}

//go:build linux

package client_test

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/client"
)

// resolves reports whether a name has an address inside.
func resolves(t *testing.T, box *client.Sandbox, name string) bool {
	t.Helper()
	r, err := box.Run(t.Context(), "getent hosts "+name)
	if err != nil {
		t.Fatal(err)
	}
	return r.ExitCode == 0
}

func TestHostsAreGrantedAndRevoked(t *testing.T) {
	open(t)
	box, err := client.FromLocal(t.Context(), t.TempDir(), client.WithAllowNet("example.com"), client.WithNetLimits("out=50M", "connections=20"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Destroy(t.Context()) })
	if !resolves(t, box, "example.com") || resolves(t, box, "a.example.org") {
		t.Error("want the address of example.com alone")
	}
	before := time.Now()
	hosts, err := box.Grant(t.Context(), time.Hour, "a.example.org")
	if err != nil {
		t.Fatal(err)
	}
	if len(hosts) != 2 || hosts[0] != (client.AllowedHost{Host: "example.com:443"}) || hosts[1].Host != "a.example.org:443" || hosts[1].Until.Before(before.Add(time.Hour)) {
		t.Errorf("after the grant: %v", hosts)
	}
	if !resolves(t, box, "a.example.org") {
		t.Error("what was granted has no address")
	}
	if hosts, err = box.Revoke(t.Context(), "example.com"); err != nil || len(hosts) != 1 {
		t.Errorf("after the revocation: %v, %v", hosts, err)
	}
	if resolves(t, box, "example.com") {
		t.Error("what was revoked has an address")
	}
	info, err := box.Info(t.Context())
	if err != nil || len(info.AllowNet) != 1 || info.AllowNet[0] != hosts[0] {
		t.Errorf("info: %v, %v", info.AllowNet, err)
	}
	if got := strings.Join(info.NetLimits, " "); got != "connections=20 out=50M" {
		t.Errorf("limits: %s", got)
	}
	if _, err := client.FromLocal(t.Context(), t.TempDir(), client.WithNetLimits("out=much")); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a malformed limit: %v, want ErrInvalid", err)
	}
	if _, err := box.Grant(t.Context(), 0, "example.net"); !errors.Is(err, client.ErrDenied) {
		t.Errorf("beyond the configuration: %v, want ErrDenied", err)
	}
	if _, err := box.Grant(t.Context(), 0, "https://example.com"); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a URL: %v, want ErrInvalid", err)
	}
	if _, err := box.Revoke(t.Context(), "example.com"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("revoked twice: %v, want ErrNotFound", err)
	}
}

func TestAPortInsideIsPublished(t *testing.T) {
	open(t)
	box, err := client.FromLocal(t.Context(), t.TempDir(), client.WithPublish("3456"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Destroy(t.Context()) })
	info, err := box.Info(t.Context())
	if err != nil || len(info.Publish) != 1 || info.Publish[0] != "3456:3456" {
		t.Fatalf("%+v, %v", info, err)
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(info.PublishAddress, "3456"))
	switch {
	case err == nil:
		c.Close()
	case !errors.Is(err, syscall.ECONNRESET): // nothing listens inside
		t.Fatal(err)
	}
	if _, err := client.FromLocal(t.Context(), t.TempDir(), client.WithPublish("80")); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a low port: %v, want ErrInvalid", err)
	}
}

package endpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/endpoint"
)

// Its token would give another server everything of ours.
func TestTheOwnServerIsMistakenForNoOther(t *testing.T) {
	for _, tt := range []struct {
		name, own string
		tls       bool
		at        string
		want      string // where is dialled; "" if it is not ours
	}{
		{name: "its very address", own: "127.0.0.1:9000", at: "127.0.0.1:9000", want: "127.0.0.1:9000"},
		{name: "localhost is made its address", own: "127.0.0.1:9000", at: "localhost:9000", want: "127.0.0.1:9000"},
		{name: "another port", own: "127.0.0.1:9000", at: "localhost:9001"},
		{name: "another address of this host", own: "127.0.0.1:9000", at: "[::1]:9000"},
		{name: "one more of them", own: "127.0.0.1:9000", at: "127.0.0.2:9000"},
		{name: "another host", own: "127.0.0.1:9000", at: "build:9000"},
		{name: "its socket", own: "unix:///run/a", at: "unix:///run/a", want: "/run/a"},
		{name: "another socket", own: "unix:///run/a", at: "unix:///run/b"},
		{name: "a port, and a socket", own: "127.0.0.1:9000", at: "unix:///run/b"},
		{name: "a socket, and a port", own: "unix:///run/a", at: "127.0.0.1:9000"},
		{name: "every address", own: "0.0.0.0:9000", tls: true, at: "https://localhost:9000", want: "localhost:9000"},
		{name: "every address, and another host", own: "[::]:9000", tls: true, at: "https://build:9000"},
		{name: "localhost with a certificate", own: "127.0.0.1:9000", tls: true, at: "https://localhost:9000", want: "localhost:9000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, err := endpoint.Parse(tt.at, endpoint.Files{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if (endpoint.LocalServer{GRPC: tt.own, TLS: tt.tls}).Matches(&at) {
				got = at.Address()
			}
			if got != tt.want {
				t.Errorf("dialled is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOnlyAServerThatServesIsFound(t *testing.T) {
	home := t.TempDir()
	if _, serves := endpoint.FindDefault(home); serves {
		t.Error("a server is found where there is none")
	}
	path := filepath.Join(home, "server.json")
	if err := os.WriteFile(path, []byte(`{"grpc":"127.0.0.1:1","token_file":"/t"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, serves := endpoint.FindDefault(home); serves {
		t.Error("a server is found that was killed")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if own, serves := endpoint.FindDefault(home); !serves || own != (endpoint.LocalServer{GRPC: "127.0.0.1:1", TokenFile: "/t"}) {
		t.Errorf("FindOwn = %+v, %t", own, serves)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if own, serves := endpoint.FindDefault(home); serves {
		t.Errorf("FindOwn = %+v of what is no JSON", own)
	}
}

package endpoint_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestParse(t *testing.T) {
	ca := endpoint.Files{CA: "ca.pem"}
	pair := endpoint.Files{Cert: "c.pem", Key: "c.key"}
	for _, tt := range []struct {
		name, text string
		options    endpoint.Files
		want       endpoint.Endpoint
		shown      string
	}{
		{name: "host and port", text: "localhost:9001", want: endpoint.Endpoint{Host: "localhost", Port: "9001"}, shown: "http://localhost:9001"},
		{name: "a host alone", text: "127.0.0.1", want: endpoint.Endpoint{Host: "127.0.0.1", Port: "9000"}, shown: "http://127.0.0.1:9000"},
		{name: "an IPv6 address", text: "[::1]:9001", want: endpoint.Endpoint{Host: "::1", Port: "9001"}, shown: "http://[::1]:9001"},
		{name: "another host speaks TLS", text: "build:9001", want: endpoint.Endpoint{Host: "build", Port: "9001", TLS: true}, shown: "https://build:9001"},
		{name: "a file for TLS makes it TLS", text: "localhost", options: ca, want: endpoint.Endpoint{Host: "localhost", Port: "9000", TLS: true, CA: "ca.pem"}, shown: "https://localhost:9000"},
		{name: "http", text: "http://localhost:1", want: endpoint.Endpoint{Host: "localhost", Port: "1"}, shown: "http://localhost:1"},
		{name: "https", text: "https://localhost/", want: endpoint.Endpoint{Host: "localhost", Port: "9000", TLS: true}, shown: "https://localhost:9000"},
		{name: "https with a certificate", text: "https://build", options: pair, want: endpoint.Endpoint{Host: "build", Port: "9000", TLS: true, Cert: "c.pem", Key: "c.key"}, shown: "https://build:9000"},
		{name: "a socket", text: "unix:///run//af.sock", want: endpoint.Endpoint{Unix: "/run/af.sock"}, shown: "unix:///run/af.sock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := endpoint.Parse(tt.text, tt.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if got.String() != tt.shown {
				t.Errorf("String = %s, want %s", got, tt.shown)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		options    endpoint.Files
		says       string
	}{
		{name: "nothing", text: "", says: "want HOST:PORT"},
		{name: "another protocol", text: "ftp://x", says: "want HOST:PORT"},
		{name: "no host", text: ":9000", says: "want HOST:PORT"},
		{name: "a path", text: "localhost:9000/v1", says: "want HOST:PORT"},
		{name: "a user", text: "me@localhost:9000", says: "want HOST:PORT"},
		{name: "a port that is none", text: "localhost:http", says: "want HOST:PORT"},
		{name: "a control character", text: "local\nhost", says: "want HOST:PORT"},
		{name: "a socket without its path", text: "unix://run/x", says: "absolute path"},
		{name: "another host without TLS", text: "http://build:9000", says: "want https://"},
		{name: "http with a file for TLS", text: "http://localhost", options: endpoint.Files{CA: "x"}, says: "want https://"},
		{name: "a socket with a file for TLS", text: "unix:///x", options: endpoint.Files{CA: "x"}, says: "TLS"},
		{name: "a certificate without its key", text: "build", options: endpoint.Files{Cert: "x"}, says: "--tls-key"},
		{name: "a key without its certificate", text: "build", options: endpoint.Files{Key: "x"}, says: "--tls-cert"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := endpoint.Parse(tt.text, tt.options)
			if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("ParseEndpoint = %v, %v, want Invalid with %q", got, err, tt.says)
			}
		})
	}
}

// FuzzParseEndpoint: what is taken is written as it is taken again, and nothing
// is sent in the clear to another host.
func FuzzParseEndpoint(f *testing.F) {
	for _, text := range []string{"localhost:9000", "https://[::1%25lo]:1", "unix:///a/../b", "http://127.1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := endpoint.Parse(text, endpoint.Files{})
		if err != nil {
			return
		}
		if !e.TLS && !e.IsLocal() {
			t.Errorf("%q is %+v", text, e)
		}
		again, err := endpoint.Parse(e.String(), endpoint.Files{})
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%q is %+v; %q is %+v, %v", text, e, e.String(), again, err)
		}
	})
}

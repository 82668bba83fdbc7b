package network_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	health_v1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/agentfense/agentfense/test/harness"
)

const speakProtocols = "speak"

// speak talks to example.com in several protocols over TLS. Its argument is a file of certificates.
func speak(args []string) int {
	pem, err := os.ReadFile(args[0])
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		fmt.Fprintln(os.Stderr, "no authority:", err)
		return 1
	}
	config := &tls.Config{RootCAs: roots}
	err = errors.Join(speakHTTP2(config), speakGRPC(config), speakWebSocket(config))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func speakHTTP2(config *tls.Config) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	var errs []error
	for range 10 { // streams of one connection
		r, err := client.Get("https://example.com/")
		if err != nil {
			return fmt.Errorf("HTTP/2: %w", err)
		}
		body, err := io.ReadAll(r.Body)
		if r.Body.Close(); err != nil || r.ProtoMajor != 2 || string(body) != "this is example.com\n" {
			errs = append(errs, fmt.Errorf("HTTP/2: got %s, %q, %w", r.Proto, body, err))
		}
	}
	return errors.Join(errs...)
}

// speakGRPC makes a call, and one whose answers are a stream.
func speakGRPC(config *tls.Config) error {
	conn, err := grpc.NewClient("example.com:443", grpc.WithTransportCredentials(credentials.NewTLS(config.Clone())))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := health_v1.NewHealthClient(conn)
	answer, err := client.Check(context.Background(), &health_v1.HealthCheckRequest{})
	if err != nil || answer.GetStatus() != health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("gRPC: got %v, %w", answer, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.Watch(ctx, &health_v1.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("gRPC: %w", err)
	}
	if answer, err := stream.Recv(); err != nil || answer.GetStatus() != health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("gRPC stream: got %v, %w", answer, err)
	}
	return nil
}

// message is a frame of text that is not masked (RFC 6455, 5.7).
var message = []byte("\x81\x05Hello")

// speakWebSocket opens a WebSocket and sends a message, which comes back.
func speakWebSocket(config *tls.Config) error {
	c, err := tls.Dial("tcp", "example.com:443", config.Clone())
	if err != nil {
		return fmt.Errorf("WebSocket: %w", err)
	}
	defer c.Close()
	// The masked frame of the same section.
	_, err = io.WriteString(c, "GET /websocket HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"+"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58")
	if err != nil {
		return fmt.Errorf("WebSocket: %w", err)
	}
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return fmt.Errorf("WebSocket: %w", err)
	}
	answer.Body.Close()
	accept := answer.Header.Get("Sec-WebSocket-Accept")
	if answer.StatusCode != http.StatusSwitchingProtocols || accept != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		return fmt.Errorf("WebSocket: got %s, %q", answer.Status, accept)
	}
	got := make([]byte, len(message))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, message) {
		return fmt.Errorf("WebSocket: got %q, %w", got, err)
	}
	return nil
}

// protocols serves what speak asks for.
func protocols(t *testing.T, mux *http.ServeMux) {
	server := grpc.NewServer()
	health_v1.RegisterHealthServer(server, health.NewServer())
	t.Cleanup(server.Stop)
	mux.Handle("example.com/grpc.health.v1.Health/", server)
	mux.HandleFunc("example.com/websocket", func(w http.ResponseWriter, r *http.Request) {
		c, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // the client notices
		}
		defer c.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(buffer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
		buffer.Flush()
		frame := make([]byte, len("\x81\x85")+len("mask")+len("Hello"))
		if _, err := io.ReadFull(buffer, frame); err != nil {
			return
		}
		mask, text := frame[2:6], frame[6:]
		for i := range text {
			text[i] ^= mask[i%len(mask)]
		}
		buffer.Write(append([]byte("\x81\x05"), text...))
		buffer.Flush()
	})
}

func TestProtocolsOverTLS(t *testing.T) {
	authority := internet(t, protocols)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		if r := s.RunProgram(speakProtocols, []string{"/opt/authority.pem"}, flags(authority, "example.com")...); r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
		opened := trusting(t, authority, "--allow-net", "example.com,intercept")
		if r := s.RunProgram(speakProtocols, []string{"/run/agentfense/ca.pem"}, opened...); r.Code != 0 {
			t.Errorf("through opened connections: exit %d\n%s", r.Code, r.Stderr)
		}
	})
}

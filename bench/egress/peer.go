package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"time"
)

// ClientVerb runs the client, inside and outside.
const ClientVerb = "__egress-client"

// serve sends on each connection as many bytes as it is asked for, and ends it.
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var n int64
			if binary.Read(c, binary.BigEndian, &n) == nil {
				_, _ = io.CopyN(c, zeros{}, n) // the client notices
			}
		}()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// certificate is one that the client does not check.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{serverName}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Client does what it is asked on standard input, HOST PORT BYTES TIMES a line, and prints how
// many nanoseconds each time took, in the median: a connection that gets so many bytes.
func Client(_ []string) error {
	addrs, err := net.LookupHost(serverName) // outside no name server would be asked
	if err != nil {
		return err
	}
	for {
		var host, port string
		var bytes int64
		var count int
		if _, err := fmt.Scanln(&host, &port, &bytes, &count); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if host == serverName {
			host = addrs[0]
		}
		var took []float64
		for range count {
			start := time.Now()
			if err := fetch(host, port, bytes); err != nil {
				return err
			}
			took = append(took, float64(time.Since(start)))
		}
		fmt.Fprintln(os.Stdout, int64(median(took)))
	}
}

func fetch(addr, port string, bytes int64) error {
	c, err := net.Dial("tcp", net.JoinHostPort(addr, port))
	if err != nil {
		return err
	}
	defer c.Close()
	if port == tlsPort {
		c = tls.Client(c, &tls.Config{ServerName: serverName, InsecureSkipVerify: true})
	}
	if err := binary.Write(c, binary.BigEndian, bytes); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != bytes {
		err = fmt.Errorf("got %d bytes, want %d", n, bytes)
	}
	return err
}

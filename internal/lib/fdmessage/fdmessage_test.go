package fdmessage_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/fdmessage"
)

// pair returns two ends of a connection.
func pair(t *testing.T) (one, other *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if one, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)); err == nil {
		other, err = l.AcceptUnix()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close(); other.Close() })
	return one, other
}

func TestDescriptorsTravelWithAMessage(t *testing.T) {
	one, other := pair(t)
	format := fdmessage.Format{Name: "test", MaxBytes: 1 << 20, MaxFiles: 2}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	sent := strings.Repeat("x", 300<<10) // more than the socket holds
	go func() {
		if err := format.Send(one, sent, write); err != nil {
			t.Error(err)
		}
		one.Close()
	}()
	var got string
	files, err := format.Receive(other, &got)
	if err != nil || got != sent || len(files) != 1 {
		t.Fatalf("%d bytes and %d descriptors, %v", len(got), len(files), err)
	}
	if _, err := files[0].Write([]byte("y")); err != nil {
		t.Error(err)
	}
	files[0].Close()
	if _, err := format.Receive(other, &got); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want EOF", err)
	}
}

func TestBoundsOfAFormat(t *testing.T) {
	small := fdmessage.Format{Name: "test", MaxBytes: 10, MaxFiles: 1}
	large := fdmessage.Format{Name: "test", MaxBytes: 100, MaxFiles: 3}
	none := fdmessage.Format{Name: "test", MaxBytes: 100}
	text := strings.Repeat("x", 20)
	one, _ := pair(t)
	if err := small.Send(one, text); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a long message is sent: %v", err)
	}
	var got any
	for name, test := range map[string]struct {
		message any
		files   int
		by      fdmessage.Format
		invalid bool
	}{
		"a long message":                {text, 0, small, true},
		"too many descriptors":          {1, 3, small, true},
		"descriptors where none may be": {1, 3, none, false},
	} {
		one, other := pair(t)
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := large.Send(one, test.message, []*os.File{file, file, file}[:test.files]...); err != nil {
			t.Fatal(err)
		}
		files, err := test.by.Receive(other, &got)
		if errdefs.Is(err, errdefs.Invalid) != test.invalid || !test.invalid && (err != nil || len(files) > 0) {
			t.Errorf("%s: %d descriptors, %v", name, len(files), err)
		}
		for _, f := range files {
			f.Close()
		}
	}
}

package supervise

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestASpoolKeepsTheEnd(t *testing.T) {
	p := newSpool()
	written := make([]byte, 0, maxSpool*3)
	for i := range cap(written) / 1024 {
		piece := bytes.Repeat([]byte{byte(i)}, 1024)
		p.Write(piece)
		written = append(written, piece...)
	}
	p.close()
	for _, tt := range []struct {
		name       string
		from, lost int64
		want       []byte
	}{
		{"all that is kept", 0, maxSpool * 2, written[maxSpool*2:]},
		{"from where another has read to", maxSpool*3 - 10, 0, written[maxSpool*3-10:]},
		{"from before what is kept", maxSpool, maxSpool, written[maxSpool*2:]},
		{"from beyond the end", maxSpool * 4, 0, nil},
		{"from before the beginning", -1, maxSpool * 2, written[maxSpool*2:]},
	} {
		r, lost := p.read(tt.from)
		got, err := io.ReadAll(r)
		if err != nil || lost != tt.lost || !bytes.Equal(got, tt.want) {
			t.Errorf("%s: %d bytes, %d lost, %v, want %d, %d", tt.name, len(got), lost, err, len(tt.want), tt.lost)
		}
	}
}

func TestASpoolLosesNothingThatIsRead(t *testing.T) {
	p := newSpool()
	slow, _ := p.read(0)
	gone, _ := p.read(0)
	want := bytes.Repeat([]byte("0123456789abcdef"), maxSpool/4)
	go func() {
		p.Write(want)
		p.close()
	}()
	got, err := io.ReadAll(io.LimitReader(slow, maxSpool))
	if err != nil || len(got) != maxSpool {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	gone.close() // whoever has left keeps nobody up
	rest, err := io.ReadAll(slow)
	if got = append(got, rest...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes were read, %v, want %d", len(got), err, len(want))
	}
	if n, err := gone.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a closed reader reads %d, %v", n, err)
	}
}

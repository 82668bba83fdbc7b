package supervise

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestARingBufferKeepsTheEnd(t *testing.T) {
	p := newRingBuffer()
	written := make([]byte, 0, maxRingBuffer*3)
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
		{"all that is kept", 0, maxRingBuffer * 2, written[maxRingBuffer*2:]},
		{"from where another has read to", maxRingBuffer*3 - 10, 0, written[maxRingBuffer*3-10:]},
		{"from before what is kept", maxRingBuffer, maxRingBuffer, written[maxRingBuffer*2:]},
		{"from beyond the end", maxRingBuffer * 4, 0, nil},
		{"from before the beginning", -1, maxRingBuffer * 2, written[maxRingBuffer*2:]},
	} {
		r, lost := p.read(tt.from)
		got, err := io.ReadAll(r)
		if err != nil || lost != tt.lost || !bytes.Equal(got, tt.want) {
			t.Errorf("%s: %d bytes, %d lost, %v, want %d, %d", tt.name, len(got), lost, err, len(tt.want), tt.lost)
		}
	}
}

func TestARingBufferLosesNothingThatIsRead(t *testing.T) {
	p := newRingBuffer()
	slow, _ := p.read(0)
	gone, _ := p.read(0)
	want := bytes.Repeat([]byte("0123456789abcdef"), maxRingBuffer/4)
	go func() {
		p.Write(want)
		p.close()
	}()
	got, err := io.ReadAll(io.LimitReader(slow, maxRingBuffer))
	if err != nil || len(got) != maxRingBuffer {
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

package egress

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
)

func TestTheServerSendsWhatItIsAskedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serve(l)
	for _, size := range []int64{0, 1, 1 << 20} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := binary.Write(c, binary.BigEndian, size); err != nil {
			t.Fatal(err)
		}
		got, err := io.Copy(io.Discard, c)
		c.Close()
		if err != nil || got != size {
			t.Errorf("got %d bytes, %v, want %d", got, err, size)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"--rounds", "0"}, {"--rounds", "-1"}, {"--run", "("}, {"--run", "^none$"}} {
		if _, err := Parse(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	o, err := Parse([]string{"--rounds", "3", "--agentfense", "x", "--run", "^npm"})
	if err != nil || o.Rounds != 3 || o.Binary != "x" || len(o.rows()) != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{1: {1}, 2: {3, 1, 2}, 2.5: {1, 4, 3, 2}} {
		if got := median(values); got != want {
			t.Errorf("median of %v: got %v, want %v", values, got, want)
		}
	}
}

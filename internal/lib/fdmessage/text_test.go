package fdmessage_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/fdmessage"
)

func TestTextsArriveAsTheyAre(t *testing.T) {
	one, other := pair(t)
	format := fdmessage.Format{Name: "test", MaxBytes: 1000}
	texts := [][]byte{{}, []byte("x"), bytes.Repeat([]byte{0, 0xff}, 500)}
	for _, text := range texts {
		if err := format.SendText(one, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := format.SendText(one, make([]byte, 1001)); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a long text is sent: %v", err)
	}
	one.Close()
	from := bufio.NewReader(other)
	for _, want := range texts {
		if got, err := format.ReceiveText(from); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
		}
	}
	if _, err := format.ReceiveText(from); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want EOF", err)
	}
	if _, err := format.ReceiveText(bytes.NewReader([]byte{0, 0, 3, 0xe9})); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a long text is received: %v", err)
	}
	if _, err := format.ReceiveText(bytes.NewReader([]byte{0, 0, 0, 2, 1})); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a text: %v, want ErrUnexpectedEOF", err)
	}
}

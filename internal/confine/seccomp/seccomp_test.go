package seccomp

import (
	"encoding/binary"
	"testing"
)

func TestFilterIsAWholeProgram(t *testing.T) {
	program, err := Filter(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(program) == 0 || len(program)%instruction != 0 || len(program)/instruction > 4096 {
		t.Errorf("filter of %d bytes is no classic-BPF program", len(program))
	}
}

func TestFilterHasTheIdsOfTheSandbox(t *testing.T) {
	count := func(filter []byte, want uint32) int {
		n := 0
		for i := value; i < len(filter); i += instruction {
			if binary.LittleEndian.Uint32(filter[i:]) == want {
				n++
			}
		}
		return n
	}
	const uid, gid = 0x7000_1234, 0x7000_4321
	filter, err := Filter(uid, gid)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []struct{ stands, is uint32 }{{OwnUser, uid}, {OwnGroup, gid}} {
		if n := count(program, id.stands); n == 0 || count(filter, id.is) != n || count(filter, id.stands) != 0 {
			t.Errorf("id %#x stands %d times, and is filled in %d times", id.stands, n, count(filter, id.is))
		}
	}
}

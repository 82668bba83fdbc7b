package seccomp

import "testing"

func TestFilterIsAWholeProgram(t *testing.T) {
	program, err := Filter()
	if err != nil {
		t.Fatal(err)
	}
	const instruction = 8 // bytes of a struct sock_filter
	if len(program) == 0 || len(program)%instruction != 0 || len(program)/instruction > 4096 {
		t.Errorf("filter of %d bytes is no classic-BPF program", len(program))
	}
}

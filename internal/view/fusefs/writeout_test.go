package fusefs_test

import (
	"bytes"
	"os"
	"testing"
)

func TestTheDiskBeginsWithLargeFilesAlone(t *testing.T) {
	tests := []struct {
		name   string
		size   int // of each write, in bytes
		writes int
		want   uint64
	}{
		{"a file of 20 MiB by 1 MiB, each time 8 MiB are together", 1 << 20, 20, 2},
		{"a file of 7 MiB is left to the kernel", 1 << 20, 7, 0},
		{"so is a file of 12 MiB by 4 KiB", 4 << 10, 3 << 10, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := mount(t, tree{}, "**=write")
			f, err := os.Create(v.path("f"))
			if err != nil {
				t.Fatal(err)
			}
			block := bytes.Repeat([]byte("x"), tt.size)
			for range tt.writes {
				if _, err := f.Write(block); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got := v.Stats()["writeout"]; got != tt.want {
				t.Errorf("the disk was told %d times, want %d", got, tt.want)
			}
			info, err := os.Stat(v.path("f"))
			if err != nil || info.Size() != int64(tt.size*tt.writes) {
				t.Errorf("the file has %v bytes, %v", info.Size(), err)
			}
		})
	}
}
